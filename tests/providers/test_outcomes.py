"""The text of a provider's error, as it is stored."""

from __future__ import annotations

import pytest

from weighbridge.model.delivery import (
    LONGEST_CODE,
    LONGEST_MESSAGE,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)

UNFIT = "a\x00b\ud83dc"


def test_text_that_cannot_be_stored_is_corrected() -> None:
    said = Outcome(Verdict.FAILED, UNFIT, message=UNFIT, request_id=UNFIT)
    assert {said.code, said.message, said.request_id} == {"a\ufffdb\ufffdc"}
    assert Outcome.completed(UNFIT).request_id == "a\ufffdb\ufffdc"


def test_text_that_is_too_long_is_cut() -> None:
    said = Outcome(Verdict.FAILED, "x" * 1000, message="x" * 1000, request_id="x" * 1000)
    assert said.code == said.request_id == "x" * (LONGEST_CODE - 1) + "…"
    assert said.message == "x" * (LONGEST_MESSAGE - 1) + "…"


def test_valid_text_is_not_changed() -> None:
    said = Outcome(Verdict.FAILED, "x" * LONGEST_CODE, message="Größe 😀\n", request_id=None)
    assert (said.code, said.message, said.request_id) == ("x" * LONGEST_CODE, "Größe 😀\n", None)


@pytest.mark.parametrize("kind", [ProviderTransientError, ProviderRateLimitError])
def test_the_text_of_an_error_is_corrected_too(kind: type[ProviderTransientError]) -> None:
    error = kind(UNFIT + "x" * 1000, UNFIT + "x" * 1000)
    assert error.message == str(error)
    assert (len(error.message), len(str(error.code))) == (LONGEST_MESSAGE, LONGEST_CODE)
    assert all("\x00" not in said and "\ud83d" not in said for said in (error.message, str(error.code)))
