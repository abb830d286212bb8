"""What is delivered to a provider, and what it says of each conversion (S4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from weighbridge.model.errors import WeighbridgeError

LONGEST_CODE = 200  # characters, of a request id too
LONGEST_MESSAGE = 500
_UNFIT = re.compile("[\x00\ud800-\udfff]")  # what PostgreSQL does not store


class Verdict(StrEnum):
    """What becomes of a row of offline_conversion_queue after a call."""

    COMPLETED = "COMPLETED"  # the provider has it
    RETRY = "RETRY"  # something passing
    FAILED = "FAILED"  # sending it again changes nothing


class Category(StrEnum):
    """Why not, in S4's words (PR9)."""

    VALIDATION = "VALIDATION"
    AUTH = "AUTH"
    TRANSIENT = "TRANSIENT"
    RATE_LIMIT = "RATE_LIMIT"


class Conversion(NamedTuple):
    """One row to deliver. The same row always carries the same order_id, so that a provider knows it again.

    A tuple: they come by the thousand, and a frozen dataclass takes five times as long to make.
    """

    id: UUID  # of the sale
    order_id: str
    click_type: str  # gclid, gbraid, wbraid, fbclid, ttclid
    click_id: str
    occurred_at: datetime
    value: Decimal | None = None
    currency: str | None = None
    user_data: Mapping[str, str] = MappingProxyType({})  # digests only, see model.digests
    clicked_at: datetime | None = None
    tries: int = 0  # earlier calls that had this row in them: their end may be unknown
    last_code: str | None = None  # what the provider said of it last time
    last_code_times: int = 0  # how often in a row

    def __repr__(self) -> str:
        """Without what could name a person."""
        return f"<conversion {self.id}: {self.click_type}, tried {self.tries} times>"


@dataclass(frozen=True)
class Outcome:
    """What a provider said of one conversion. Of its own error, not of the batch's first."""

    verdict: Verdict
    code: str | None = None  # the provider's own
    category: Category | None = None
    message: str | None = None  # a sentence; never a secret, a click id or a person's data
    request_id: str | None = None  # the proof
    retry_after: timedelta | None = None  # at the earliest; else the queue's own backoff
    duplicate: bool = False  # it had it already: an earlier call went through
    awaits_confirmation: bool = False  # accepted; whether it counts is asked later (Confirms)
    counts: bool = True  # its retry uses one up; False: it was not sent

    def __post_init__(self) -> None:
        """The words are a provider's, and are stored: without what cannot be, and not too long."""
        for name, longest in (
            ("code", LONGEST_CODE),
            ("message", LONGEST_MESSAGE),
            ("request_id", LONGEST_CODE),
        ):
            said = getattr(self, name)
            if said is not None and (fit := _fit(said, longest)) is not said:
                object.__setattr__(self, name, fit)

    @classmethod
    def completed(
        cls, request_id: str | None, *, duplicate: bool = False, awaits_confirmation: bool = False
    ) -> Outcome:
        return cls(
            Verdict.COMPLETED,
            request_id=request_id,
            duplicate=duplicate,
            awaits_confirmation=awaits_confirmation,
        )

    @classmethod
    def failed(cls, code: str, message: str, category: Category = Category.VALIDATION) -> Outcome:
        return cls(Verdict.FAILED, code, category, message)

    @classmethod
    def retry(
        cls,
        code: str | None,
        message: str,
        category: Category = Category.TRANSIENT,
        after: timedelta | None = None,
        *,
        counts: bool = True,
    ) -> Outcome:
        return cls(Verdict.RETRY, code, category, message, retry_after=after, counts=counts)


def _fit(said: str, longest: int) -> str:
    said = said if len(said) <= longest else said[: longest - 1] + "…"
    return _UNFIT.sub("\ufffd", said) if _UNFIT.search(said) else said


class ProviderTransientError(WeighbridgeError):
    """The whole call came to nothing: no answer, a 5xx, a cut line. What became of it is not known."""

    def __init__(self, message: str, code: str | None = None, retry_after: timedelta | None = None) -> None:
        self.message = _fit(message, LONGEST_MESSAGE)
        super().__init__(self.message)
        self.code = None if code is None else _fit(code, LONGEST_CODE)
        self.retry_after = retry_after


class ProviderRateLimitError(ProviderTransientError):
    """Too much, says the provider: this site's share, or (`whole_provider`) that of all sites together.

    `pause`: how long all sites wait in that case, where it is not `retry_after`.
    """

    def __init__(
        self,
        message: str,
        code: str | None = None,
        retry_after: timedelta | None = None,
        *,
        whole_provider: bool = False,
        pause: timedelta | None = None,
    ) -> None:
        super().__init__(message, code, retry_after)
        self.whole_provider = whole_provider
        self.pause = pause
