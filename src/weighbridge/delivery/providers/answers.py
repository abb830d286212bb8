"""HTTP for adapters: requests whose failures all have a code, and strict parsing of responses.

Compressed responses are refused, and a response is read up to a maximum length. Messages contain no address, header or
body: they may contain secrets.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Any

import httpx

from weighbridge.delivery.providers.base import Batch, Credentials, Needed
from weighbridge.delivery.providers.connections import Answer, Client
from weighbridge.model.delivery import Category, Outcome, ProviderRateLimitError, ProviderTransientError
from weighbridge.model.errors import did_you_mean
from weighbridge.model.retry import LONGEST_ANSWER_PAUSE

LONGEST = 8 << 20  # bytes of a response: Google's for 2,000 rows with two errors each has 4.4 million
LONGEST_UNREAD = (
    64 << 10
)  # of a response whose body is not needed: read only so that the connection can be used again
NOT_SENT = Outcome.retry(
    "NOT_SENT", "The row did not fit into this call and is sent with the next one.", counts=False
)
_OF_THE_LINE = {"content-encoding", "content-length", "transfer-encoding"}
_SECONDS = re.compile(r"\d+(\.\d+)?")
_VALUE = re.compile(r"[@'\"‘’“”`=:]\S|\S\d\S{3}|\d{5}")  # may be a value, and is not an ordinary word


async def post(
    http: httpx.AsyncClient,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    json: Any = None,
    data: Mapping[str, str] | None = None,
    extensions: Mapping[str, Any] | None = None,
    reads: bool = True,
) -> httpx.Response:
    """The response, read completely. `data` is sent as a form. Without `reads` the body is dropped: the status is
    enough. Raises ProviderTransientError if there is no response: then the outcome of the request is unknown.
    """
    more = {"content": content, "json": json, "data": data, "extensions": extensions}
    return await request(http, "POST", url, headers=headers, reads=reads, **more)


async def get(
    http: httpx.AsyncClient, url: str, *, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """As `post`."""
    return await request(http, "GET", url, headers=headers)


async def request(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    reads: bool = True,
    **more: Any,
) -> httpx.Response:
    """As `post`. Redirects are not followed: the data is meant only for this address."""
    sent = {**(headers or {}), "accept-encoding": "identity"}
    response: httpx.Response | Answer | None = None
    try:
        async with (
            asyncio.timeout(_request_timeout(http)),
            _stream(http, method, url, headers=sent, **more) as response,
        ):
            return _answer(response, await _body(response, LONGEST if reads else LONGEST_UNREAD))
    except (TimeoutError, httpx.HTTPError, ProviderTransientError) as error:
        if response is not None and (not reads or _is_retryable(response.status_code)):
            return _answer(response)
        raise _unanswered(error) from None  # httpx's error contains the request with its data


def _stream(
    http: httpx.AsyncClient, method: str, url: str, **more: Any
) -> AbstractAsyncContextManager[httpx.Response | Answer]:
    if isinstance(http, Client):
        return http.stream_raw(method, url, **more)
    return http.stream(method, url, follow_redirects=False, **more)


def in_time(batch: Batch, http: httpx.AsyncClient) -> bool:
    """Whether a further request of any duration would end before the deadline of the call. Adapters do not check this
    before the first request: if a request may take longer than a call, none would ever be sent.
    """
    return batch.deadline is None or batch.deadline - monotonic() >= (_request_timeout(http) or 0)


def _request_timeout(http: httpx.AsyncClient) -> float | None:
    """Maximum seconds for a whole request. httpx's timeouts restart with every byte."""
    known = [seconds for seconds in http.timeout.as_dict().values() if seconds is not None]
    return max(known, default=None)


async def _body(response: httpx.Response | Answer, longest: int) -> bytes:
    if response.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise ProviderTransientError(
            "The response is compressed, although an uncompressed one was requested.", "PACKED"
        )
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > longest:
            raise ProviderTransientError(
                f"The response ({response.status_code}) is longer than {longest:,} bytes.", "TOO_LONG"
            )
    return bytes(body)


def _answer(response: httpx.Response | Answer, body: bytes = b"") -> httpx.Response:
    """The response, without the request."""
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_LINE]
    return httpx.Response(response.status_code, headers=headers, content=body)


def _unanswered(error: Exception) -> ProviderTransientError:
    match error:
        case ProviderTransientError():
            return error
        case httpx.ConnectTimeout() | httpx.ConnectError():
            return ProviderTransientError("The provider could not be reached.", "UNREACHABLE")
        case httpx.PoolTimeout():
            return ProviderTransientError("No connection to the provider was free in time.", "POOL_TIMEOUT")
        case httpx.TimeoutException() | TimeoutError():
            return ProviderTransientError("The provider did not respond in time.", "TIMEOUT")
        case httpx.NetworkError() | httpx.RemoteProtocolError():
            return ProviderTransientError(
                "The connection to the provider was closed before it responded.", "CUT"
            )
        case _:
            kind = type(error).__name__
            return ProviderTransientError(f"The request to the provider failed ({kind}).", "NO_ANSWER")


def raise_for_retryable(response: httpx.Response, now: datetime) -> None:
    """429 is a ProviderRateLimitError; 5xx, 408 and redirects are ProviderTransientErrors. Others are answers."""
    status = response.status_code
    after = retry_after(response, now)
    if not _is_retryable(status):
        return
    if status == 429:
        raise ProviderRateLimitError("The provider's rate limit is reached (429).", "HTTP_429", after)
    if status >= 500 or status == 408:
        raise ProviderTransientError(f"The provider reports an error ({status}).", f"HTTP_{status}", after)
    raise ProviderTransientError(
        f"The provider's address redirects ({status}); redirects are not followed.",
        f"HTTP_{status}",
        after,
    )


def _is_retryable(status: int) -> bool:
    return status in (408, 429) or status >= 500 or 300 <= status < 400


def retry_after(response: httpx.Response, now: datetime) -> timedelta | None:
    """Retry-After of the response: seconds or an HTTP date, at most a day. None: not given."""
    header = response.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(header):
        return timedelta(seconds=min(float(header), LONGEST_ANSWER_PAUSE.total_seconds()))
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max(until - now, timedelta(0)), LONGEST_ANSWER_PAUSE)


def json_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of the response. Other content comes from a proxy, not the provider: ProviderTransientError."""
    try:
        body = response.json()
    except (ValueError, RecursionError):  # the latter: nested too deeply
        body = None
    if not isinstance(body, dict):
        raise ProviderTransientError(
            f"The response ({response.status_code}) is not from the provider: expected a JSON object.",
            "NOT_JSON",
        )
    return body


def quoted(value: object, batch: Batch) -> str:
    """A provider's message, shortened and without the values that it quotes."""
    text = str(value or "")
    for conversion in batch.conversions:
        for value in (conversion.click_id, *conversion.user_data.values()):
            text = text.replace(value, "…") if value and value in text else text
    for value in batch.credentials.values():
        text = text.replace(value, "…") if value and value in text else text
    text = " ".join(word if _harmless(word) else "…" for word in text.split())
    return text if len(text) <= 200 else text[:199] + "…"


def _harmless(word: str) -> bool:
    return len(word) <= 24 and not _VALUE.search(word)


def whole(batch: Batch, outcome: Outcome) -> list[Outcome]:
    """The same for every row."""
    return [outcome] * len(batch.conversions)


def lacking(credentials: Credentials, needs: Sequence[Needed]) -> Outcome | None:
    """The error of a site's credentials before a request is sent, or None. Messages contain no values."""
    names = {needed.name for needed in needs}
    for name in credentials:
        if name not in names:
            return _credentials(f"The credentials contain an unknown name '{name}'{_near(name, names)}")
    for needed in needs:
        value = credentials.get(needed.name, "")
        if needed.required and not value.strip():
            return _credentials(f"The credentials lack '{needed.name}' ({needed.help}).")
        if not value.isprintable() or value != value.strip() or (needed.secret and not value.isascii()):
            return _credentials(
                f"'{needed.name}' of the credentials contains invalid characters, "
                "such as a space or a line break at its end. Copy it again."
            )
    return None


def _credentials(message: str) -> Outcome:
    return Outcome.failed("CREDENTIALS", message, Category.AUTH)


def _near(name: str, names: Iterable[str]) -> str:
    return did_you_mean(name, names) or "."


def retry_of(error: ProviderTransientError, *, sent: bool = True) -> Outcome:
    """The error as the outcome of one row, if other rows of the batch have an outcome. Not `sent`: an earlier request
    failed.
    """
    limited = isinstance(error, ProviderRateLimitError)
    category = Category.RATE_LIMIT if limited else Category.TRANSIENT
    return Outcome.retry(error.code, error.message, category, error.retry_after, counts=sent)


def settled(results: Sequence[Outcome | ProviderTransientError]) -> list[Outcome]:
    """The outcomes of a batch that was sent in parts: rows whose request failed are retried. Raises the error if every
    row has one, or if it concerns all sites; a rate limit first, as it contains the time to wait.
    """
    errors = [result for result in results if isinstance(result, ProviderTransientError)]
    others = [result for result in results if isinstance(result, Outcome)]
    forward = any(each.counts for each in others)
    if errors and not forward:
        worst = next((error for error in errors if isinstance(error, ProviderRateLimitError)), errors[0])
        if not others or getattr(worst, "whole_provider", False):
            raise worst
    if others and not errors and not forward:  # otherwise every call could end like this, for ever
        return [replace(each, counts=True) for each in others]
    return [retry_of(each) if isinstance(each, ProviderTransientError) else each for each in results]
