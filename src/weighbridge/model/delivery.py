"""A conversion that is delivered to a provider, and the provider's outcome for it."""

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

LONGEST_CODE = 200  # characters; also for a request id
LONGEST_MESSAGE = 500
_UNFIT = re.compile("[\x00\ud800-\udfff]")  # characters that PostgreSQL cannot store


class Verdict(StrEnum):
    """The state of a row of offline_conversion_queue after a call."""

    COMPLETED = "COMPLETED"  # the provider accepted it
    RETRY = "RETRY"  # temporary failure
    FAILED = "FAILED"  # permanent: sending it again would not help


class Category(StrEnum):
    """The category of an error; the values are fixed by docs/contracts.md."""

    VALIDATION = "VALIDATION"
    AUTH = "AUTH"
    TRANSIENT = "TRANSIENT"
    RATE_LIMIT = "RATE_LIMIT"


# Kinds of click ids. A sale needs at least one; the first one identifies it if it has no order id.
CLICKS = ("gclid", "wbraid", "gbraid", "fbclid", "ttclid")


class Conversion(NamedTuple):
    """One row to deliver. The same row always has the same order_id, so that a provider recognises repeats.

    A tuple: there are thousands, and a frozen dataclass takes five times as long to create.
    """

    id: UUID  # of the sale
    order_id: str
    click_type: str  # one of CLICKS
    click_id: str
    occurred_at: datetime
    value: Decimal | None = None
    currency: str | None = None
    user_data: Mapping[str, str] = MappingProxyType({})  # digests only, see model.digests
    clicked_at: datetime | None = None
    tries: int = 0  # earlier calls with this row; their result may be unknown
    last_code: str | None = None  # the provider's code of the last attempt
    last_code_times: int = 0  # number of consecutive times

    def __repr__(self) -> str:
        """Without personal data."""
        return f"<conversion {self.id}: {self.click_type}, tried {self.tries} times>"


@dataclass(frozen=True)
class Outcome:
    """A provider's result for one conversion: its own error, not the first one of the batch."""

    verdict: Verdict
    code: str | None = None  # the provider's own
    category: Category | None = None
    message: str | None = None  # a sentence; never a secret, a click id or personal data
    request_id: str | None = None  # the provider's id of the request, as evidence
    retry_after: timedelta | None = None  # earliest retry; without it, the queue's backoff
    duplicate: bool = False  # the provider already had it: an earlier call succeeded
    awaits_confirmation: bool = False  # accepted; confirmation is requested later (Confirms)
    counts: bool = True  # the retry counts; False: it was not sent

    def __post_init__(self) -> None:
        """The texts are a provider's, and are stored: remove characters that cannot be stored, and shorten them."""
        for name, longest in (
            ("code", LONGEST_CODE),
            ("message", LONGEST_MESSAGE),
            ("request_id", LONGEST_CODE),
        ):
            text = getattr(self, name)
            if text is not None and (fit := _fit(text, longest)) is not text:
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


def _fit(text: str, longest: int) -> str:
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return _UNFIT.sub("\ufffd", text) if _UNFIT.search(text) else text


class ProviderTransientError(WeighbridgeError):
    """The whole call failed: no answer, a 5xx, a lost connection. Its effect is unknown."""

    def __init__(self, message: str, code: str | None = None, retry_after: timedelta | None = None) -> None:
        self.message = _fit(message, LONGEST_MESSAGE)
        super().__init__(self.message)
        self.code = None if code is None else _fit(code, LONGEST_CODE)
        self.retry_after = retry_after


class ProviderRateLimitError(ProviderTransientError):
    """The provider limits the rate: of this site, or (`whole_provider`) of all sites together.

    `pause`: how long all sites wait in the second case, if not `retry_after`.
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
