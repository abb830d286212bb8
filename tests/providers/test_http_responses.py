"""The HTTP functions that all adapters share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.providers.cases import META, NOW
from weighbridge.delivery.providers import answers, split
from weighbridge.delivery.providers.base import Credentials, Needed
from weighbridge.model.delivery import (
    Category,
    Conversion,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)
from weighbridge.testing import FakeMeta, Fault
from weighbridge.testing._server import Reply

ROWS = [META.row(at) for at in range(9)]
TAKEN = Outcome.completed("proof")
REFUSED = Outcome.failed("BAD", "It is bad.")


def said(status: int, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("7", timedelta(seconds=7)),
        (" 0 ", timedelta(0)),
        ("1.5", timedelta(seconds=1.5)),
        ("999999999", timedelta(days=1)),
        ("9" * 400, timedelta(days=1)),
        ("Sun, 15 Nov 2026 12:00:30 GMT", timedelta(seconds=30)),
        ("Sun, 15 Nov 2026 11:00:00 GMT", timedelta(0)),
        ("Sun, 15 Nov 2099 12:00:00 GMT", timedelta(days=1)),
        ("soon", None),
        ("-3", None),
        ("", None),
        ("nan", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_more_than_a_day(
    header: str, expected: timedelta | None
) -> None:
    assert answers.retry_after(said(429, retry_after=header), NOW) == expected


def test_retry_after_is_none_without_the_header() -> None:
    assert answers.retry_after(said(429), NOW) is None


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 408, 301, 302, 307])
def test_temporary_statuses_are_retried(status: int) -> None:
    with pytest.raises(ProviderTransientError) as raised:
        answers.raise_for_retryable(said(status, retry_after="5"), NOW)
    assert type(raised.value) is ProviderTransientError
    assert raised.value.code == f"HTTP_{status}"
    assert raised.value.retry_after == timedelta(seconds=5)


def test_429_is_a_rate_limit() -> None:
    with pytest.raises(ProviderRateLimitError):
        answers.raise_for_retryable(said(429), NOW)


@pytest.mark.parametrize("status", [200, 204, 400, 401, 403, 404, 422])
def test_other_statuses_are_answers(status: int) -> None:
    answers.raise_for_retryable(said(status), NOW)


@pytest.mark.parametrize(
    "content", [b"<html>", b"", b"[1]", b'"ok"', b"\xff\xfe", b"null", b"[" * 100_000, b'{"a":' * 100_000]
)
def test_a_response_that_is_no_json_object_is_not_from_the_provider(content: bytes) -> None:
    with pytest.raises(ProviderTransientError, match="expected a JSON object"):
        answers.json_of(httpx.Response(200, content=content))


async def test_a_redirect_is_not_followed(http: httpx.AsyncClient) -> None:
    http.follow_redirects = True
    with FakeMeta() as fake, FakeMeta() as other:
        fake.error = lambda call, status: _to(other.url, status)  # type: ignore[method-assign]
        fake.script(Fault.status(307))
        response = await answers.post(http, fake.url, json={"secret": 1})
    assert response.status_code == 307
    assert list(other.calls) == []


class Endless(httpx.AsyncByteStream):
    """A body that never ends, or that stops in the middle."""

    def __init__(self, *, halts: bool = False) -> None:
        self.chunks, self._halts = 0, halts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.chunks += 1
            yield bytes(1 << 16)
            if self._halts:
                await asyncio.Event().wait()


async def answered(body: Endless, status: int = 200, *, reads: bool = True, **headers: str) -> httpx.Response:
    head = {name.replace("_", "-"): value for name, value in headers.items()}
    transport = httpx.MockTransport(lambda _: httpx.Response(status, headers=head, stream=body))
    async with httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(0.2, connect=0.1)) as http:
        return await answers.post(http, "http://provider/", content=b"", reads=reads)


async def test_a_response_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST", 1 << 18)
    body = Endless()
    with pytest.raises(
        ProviderTransientError, match=r"The response \(200\) is longer than 262,144 bytes"
    ) as raised:
        await answered(body)
    assert raised.value.code == "TOO_LONG"
    assert body.chunks == 5


async def test_a_compressed_response_is_not_decompressed() -> None:
    body = Endless()
    with pytest.raises(ProviderTransientError) as raised:
        await answered(body, content_encoding="gzip")
    assert (raised.value.code, body.chunks) == ("PACKED", 0)


async def test_an_uncompressed_response_is_requested(http: httpx.AsyncClient) -> None:
    with FakeMeta() as fake:
        await answers.post(http, fake.url, json={}, headers={"x-own": "1"})
    assert (fake.calls[0].headers["accept-encoding"], fake.calls[0].headers["x-own"]) == ("identity", "1")


async def test_the_whole_request_has_a_time_limit() -> None:
    with pytest.raises(ProviderTransientError) as raised:
        await answered(Endless(halts=True))
    assert raised.value.code == "TIMEOUT"


@pytest.mark.parametrize("body", [Endless(), Endless(halts=True)], ids=["endless", "halting"])
async def test_the_body_does_not_matter_if_the_status_is_sufficient(body: Endless) -> None:
    response = await answered(body, 202, reads=False)
    assert (response.status_code, response.content) == (202, b"")
    assert body.chunks <= 2


async def test_a_rate_limit_with_an_unreadable_body_is_still_a_rate_limit() -> None:
    response = await answered(Endless(), 429, content_encoding="gzip", retry_after="7")
    with pytest.raises(ProviderRateLimitError) as raised:
        answers.raise_for_retryable(response, NOW)
    assert raised.value.retry_after == timedelta(seconds=7)


async def test_connections_are_reused(http: httpx.AsyncClient) -> None:
    seen = []

    async def look(event: str, info: dict[str, Any]) -> None:
        seen.append(event)

    with FakeMeta() as fake:
        for reads in (True, False, True):
            await answers.post(http, fake.url, json={}, reads=reads, extensions={"trace": look})
    assert seen.count("connection.connect_tcp.complete") == 1


def _to(url: str, status: int) -> Reply:
    return Reply(status, {}, {"location": url})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"account": "7", "key": "k"}, None),
        ({"account": "7", "key": "k", "note": "ß"}, None),
        ({"account": "7"}, "'key' (the key)"),
        ({"account": "7", "key": " "}, "'key' (the key)"),
        ({"account": "7", "key": "k", "kee": "x"}, "did you mean 'key'?"),
        ({"account": "7", "key": "canary\n"}, "'key' of the credentials contains invalid characters"),
        ({"account": "7", "key": "canaryß"}, "'key' of the credentials contains invalid characters"),
        (
            {"account": "7", "key": "k", "note": "can\0ary"},
            "'note' of the credentials contains invalid characters",
        ),
    ],
)
def test_invalid_credentials_are_named_before_anything_is_sent(
    values: dict[str, str], expected: str | None
) -> None:
    needs = (
        Needed("account", "its number", secret=False),
        Needed("key", "the key"),
        Needed("note", "a word", required=False, secret=False),
    )
    found = answers.lacking(Credentials(values), needs)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.verdict, found.category) == (Verdict.FAILED, Category.AUTH)
        assert expected in str(found.message)
        assert "canary" not in str(found.message)


def test_a_provider_is_quoted_without_the_values_that_it_repeats() -> None:
    batch = META.batch(FakeMeta())
    click, digest = ROWS[0].click_id, ROWS[0].user_data["email"]
    words = f"Invalid parameter: '{click}', {digest}, jane@example.com, +491701234567 and TOKENcanaryEAAB are bad."
    told = answers.quoted(words, batch)
    assert told.startswith("Invalid parameter: …")
    assert told.endswith("are bad.")
    assert not [value for value in (click, digest, "jane", "4917", "TOKEN") if value in told]
    assert len(answers.quoted("word " * 1000, batch)) == 200
    assert answers.quoted(None, batch) == ""


def test_a_credential_that_looks_like_a_word_is_not_repeated_either() -> None:
    row = META.row(0, click_id="Letters", user_data={"email": "abcdef"})
    batch = META.batch(FakeMeta(), conversions=[row], credentials={"access_token": "Open"})
    assert answers.quoted("Letters and abcdef and Open.", batch) == "… and … and …."


async def test_a_connection_error_does_not_contain_the_request(http: httpx.AsyncClient) -> None:
    with FakeMeta() as fake:
        fake.script(Fault.cut())
        with pytest.raises(ProviderTransientError) as raised:
            await answers.post(http, fake.url, json={"secret": 1})
    assert raised.value.code == "CUT"
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_a_batch_of_which_nothing_was_settled_raises_the_rate_limit_first() -> None:
    trouble, limit = ProviderTransientError("Trouble."), ProviderRateLimitError("Too much.", "429")
    with pytest.raises(ProviderRateLimitError):
        answers.settled([trouble, limit])
    retried = answers.settled([trouble, TAKEN, limit])
    assert [each.verdict for each in retried] == [Verdict.RETRY, Verdict.COMPLETED, Verdict.RETRY]
    assert [each.category for each in retried] == [Category.TRANSIENT, None, Category.RATE_LIMIT]
    assert answers.settled([]) == []


def test_a_limit_of_all_sites_is_raised_even_if_some_rows_were_not_sent() -> None:
    limit = ProviderRateLimitError("Too much.", "429", whole_provider=True)
    with pytest.raises(ProviderRateLimitError):
        answers.settled([limit, answers.NOT_SENT])
    assert [each.counts for each in answers.settled([ProviderTransientError("Cut."), answers.NOT_SENT])] == [
        True,
        False,
    ]


class Picky:
    """Refuses a part with a bad row, and fails from a given call on."""

    def __init__(self, *bad: int, fails_at: int | None = None) -> None:
        self.bad, self.fails_at = {f"order-{at}" for at in bad}, fails_at
        self.calls: list[int] = []

    async def __call__(self, rows: Sequence[Conversion]) -> list[Outcome] | Outcome:
        if len(self.calls) == self.fails_at:
            raise ProviderTransientError("Cut.", "CUT")
        self.calls.append(len(rows))
        return REFUSED if self.bad & {row.order_id for row in rows} else [TAKEN] * len(rows)


async def test_bad_rows_are_found_by_bisection() -> None:
    picky = Picky(2, 8)
    outcomes = await split.bisected(ROWS, picky)
    assert [at for at, outcome in enumerate(outcomes) if outcome is REFUSED] == [2, 8]
    assert outcomes.count(TAKEN) == 7
    assert picky.calls[0] == 9


async def test_an_empty_batch_makes_no_call() -> None:
    picky = Picky()
    assert await split.bisected([], picky) == []
    assert picky.calls == []


async def test_a_failure_during_the_bisection_keeps_the_settled_rows() -> None:
    picky = Picky(8, fails_at=2)
    outcomes = await split.bisected(ROWS, picky)
    assert outcomes[:4] == [TAKEN] * 4
    assert {(each.verdict, each.code) for each in outcomes[4:]} == {(Verdict.RETRY, "CUT")}


async def test_parts_that_were_not_sent_because_of_a_failure_use_no_retry() -> None:
    outcomes = await split.bisected(ROWS, Picky(8, fails_at=3))  # of 9, of 4, of 5; then 4 and 5 meet it
    assert outcomes[:4] == [TAKEN] * 4
    assert {(each.verdict, each.code) for each in outcomes[4:]} == {(Verdict.RETRY, "CUT")}
    assert [each.counts for each in outcomes[4:]] == [True, True, False, False, False]


async def test_parts_that_would_exceed_the_time_of_the_call_are_not_started() -> None:
    picky = Picky(2)
    outcomes = await split.bisected(ROWS, picky, in_time=lambda: len(picky.calls) < 4)
    assert picky.calls == [9, 4, 2, 2]
    assert outcomes[:2] == [TAKEN] * 2
    assert set(map(repr, outcomes[2:])) == {repr(answers.NOT_SENT)}
    assert not answers.NOT_SENT.counts


async def test_all_rows_count_as_sent_if_a_call_settles_none() -> None:
    outcomes = await split.bisected(ROWS, Picky(2), in_time=lambda: False)
    assert {(each.verdict, each.code, each.counts) for each in outcomes} == {
        (Verdict.RETRY, "NOT_SENT", True)
    }


async def test_a_batch_of_bad_rows_needs_a_limited_number_of_requests() -> None:
    picky = Picky(*range(9))
    outcomes = await split.bisected(ROWS, picky, most=6)
    assert len(picky.calls) == 6
    assert REFUSED in outcomes
    left = [each for each in outcomes if each is not REFUSED]
    assert {(each.verdict, each.category, each.counts) for each in left} == {
        (Verdict.RETRY, Category.VALIDATION, False)
    }
