"""Conversions → Google, by events:ingest of the Data Manager API: the successor of google_ads.

One bad event makes Google refuse the whole request. If the response names the bad events, the others are sent again; if
it names none, the request is sent again in halves. A successful response is only a receipt: confirm.py requests the
result later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx

from weighbridge.delivery.providers import answers, google_oauth, google_rows
from weighbridge.delivery.providers.base import Batch, Confirmation, Credentials, Needed
from weighbridge.delivery.providers.google import Connection, Google, Sending
from weighbridge.delivery.providers.google_errors import as_dict, as_dicts, code_of, duration
from weighbridge.delivery.providers.google_oauth import AccessRefused
from weighbridge.delivery.providers.google_rows import text
from weighbridge.model.delivery import (
    Category,
    Conversion,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)
from weighbridge.model.retry import GOOGLE_REGISTERS

REQUESTS = 48  # maximum per `send`: one bad row of 2,000 takes 23. The remaining rows wait for the next call
_SCOPE = "https://www.googleapis.com/auth/datamanager"
_REFRESH = f"of a user who may use the account: a refresh token with the scope {_SCOPE}"
_EVENT = re.compile(r"\bevents\[(\d+)\]")
_LATER = {"CONVERSION_ACTION_TOO_RECENTLY_CREATED"}
# Not about an event: both halves of the request would be refused too.
_OF_ALL = {
    "INVALID_DESTINATION",
    "INVALID_CONVERSION_ACTION_ID",
    "INVALID_CONVERSION_ACTION_TYPE",
    "CONVERSION_ACTION_TOO_RECENTLY_CREATED",
    "TERMS_AND_CONDITIONS_NOT_SIGNED",
    "DESTINATION_ACCOUNT_NOT_ENABLED_ENHANCED_CONVERSIONS_FOR_LEADS",
    "DESTINATION_ACCOUNT_DATA_POLICY_PROHIBITS_ENHANCED_CONVERSIONS",
    "DESTINATION_ACCOUNT_ENHANCED_CONVERSIONS_TERMS_NOT_SIGNED",
    "DESTINATION_ACCOUNT_TYPE_MISMATCH",
    "OPERATING_ACCOUNT_LOGIN_ACCOUNT_MISMATCH",
    "NOT_ALLOWLISTED",
}
_AUTH = {
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": f"The refresh token is not for the scope {_SCOPE}. "
    "Let the user of the account grant the scope, and store the new refresh_token.",
    "SERVICE_DISABLED": "The Data Manager API is disabled in the project of the OAuth client. Enable it.",
}
# Google received these in an earlier call.
_DELIVERED = {"PROCESSING_ERROR_REASON_DUPLICATE_TRANSACTION_ID", "PROCESSING_ERROR_REASON_DUPLICATE_GCLID"}


class GoogleDataManager(Google):
    name = "google_datamanager"
    max_batch = 2000
    clicks = google_rows.CLICKS
    window: timedelta | None = timedelta(days=90)
    window_from = "click"
    confirm_after = timedelta(minutes=30)
    needs = (
        *(
            replace(each, help=_REFRESH) if each.name == "refresh_token" else each
            for each in google_oauth.NEEDS
        ),
        Needed(
            "conversion_action_id",
            "the number of the conversion action; or use conversion_action_resource_name",
            required=False,
            secret=False,
        ),
        Needed(
            "conversion_action_resource_name",
            "as for google_ads, instead of conversion_action_id",
            required=False,
            secret=False,
        ),
        Needed("developer_token", "not used; only google_ads needs it", required=False),
    )

    def __init__(
        self, *, base_url: str = "https://datamanager.googleapis.com", token_url: str | None = None
    ) -> None:
        super().__init__(base_url=base_url, token_url=token_url)

    def sending(self, batch: Batch, connection: Connection) -> _Ingest:
        return _Ingest(batch, connection, _destination(batch.credentials))

    async def confirm(
        self, request_id: str, credentials: Credentials, http: httpx.AsyncClient
    ) -> Confirmation:
        """Raises ProviderTransientError if Google does not report the result: ask again later."""
        path = f"/v1/requestStatus:retrieve?requestId={quote(request_id, safe='')}"
        try:
            response = await _ask(self.connect(http, credentials, None), "GET", path)
        except AccessRefused as refused:
            raise ProviderTransientError(str(refused), refused.outcome.code) from None
        if response.status_code != 200:
            refusal = _Refusal.read(response)
            raise ProviderTransientError(
                f"Google does not report the result of the request ({refusal.code}).", refusal.code
            )
        return confirmation(answers.json_of(response))


def confirmation(answer: Mapping[str, Any]) -> Confirmation:
    """The counts of a request. A row that Google received in an earlier call counts as accepted."""
    destinations = as_dicts(answer.get("requestStatusPerDestination"))
    if not destinations:
        raise ProviderTransientError("Google's response contains no status of the request.", "NO_STATUS")
    status = destinations[0]  # we send to one
    state = status.get("requestStatus")
    if state not in ("SUCCESS", "PARTIAL_SUCCESS", "FAILED"):
        return Confirmation("PROCESSING")
    reasons = _reasons(status)
    total = _count(as_dict(status.get("eventsIngestionStatus")).get("recordCount"))
    refused = sum(count for reason, count in reasons.items() if reason not in _DELIVERED)
    if state == "FAILED" and not reasons:
        refused = total
    total = max(total, refused)
    if not refused and (reasons or state == "SUCCESS"):
        return Confirmation("CONFIRMED", accepted=total, reasons=reasons)
    return Confirmation("REFUSED" if refused == total else "PARTIAL", total - refused, refused, reasons)


def _reasons(status: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in as_dicts(as_dict(status.get("errorInfo")).get("errorCounts")):
        reason = code_of(each.get("reason"))
        found[reason] = found.get(reason, 0) + _count(each.get("recordCount"))
    return found


def _count(value: Any) -> int:
    """An int64, which is a string in JSON."""
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else 0


def _destination(credentials: Credentials) -> dict[str, Any]:
    account = {"accountType": "GOOGLE_ADS", "accountId": google_oauth.number(credentials, "customer_id")}
    named = "conversion_action_id" if credentials.get("conversion_action_id") else None
    action = google_oauth.number(credentials, named) if named else google_oauth.action(credentials)
    destination: dict[str, Any] = {"operatingAccount": account, "productDestinationId": action}
    if credentials.get("login_customer_id"):
        login = google_oauth.number(credentials, "login_customer_id")
        destination["loginAccount"] = {"accountType": "GOOGLE_ADS", "accountId": login}
    return destination


async def _ask(
    connection: Connection, method: str, path: str, content: bytes | None = None
) -> httpx.Response:
    """Raises if the response is about Google's state, not about the request."""
    response = await connection.request(method, path, content=content, expired=_expired)
    now = connection.now or google_oauth.LONG_AGO
    if response.status_code == 429:
        refusal = _Refusal.read(response)
        wait = refusal.retry_delay or answers.retry_after(response, now)
        raise ProviderRateLimitError("Google's rate limit is reached (429).", refusal.code, wait)
    answers.raise_for_retryable(response, now)
    return response


@dataclass
class _Ingest(Sending):
    destination: dict[str, Any]
    requests: int = 0

    async def send(self) -> None:
        waiting = [google_rows.sendable(self.batch.conversions, self.results)]
        while waiting and self._may_ask():
            rows = waiting.pop()
            try:
                waiting += reversed(await self._part(rows))
            except ProviderTransientError as error:  # the other requests would fail too
                self.settle(rows, error)
                for left in waiting:
                    self.settle(left, answers.retry_of(error, sent=False))
                return

    def _may_ask(self) -> bool:
        return not self.requests or (
            self.requests < REQUESTS and answers.in_time(self.batch, self.connection.http)
        )

    async def _part(self, rows: Sequence[int]) -> list[list[int]]:
        """One request. Returns requests for its rows without an outcome."""
        if not rows:
            return []
        self.requests += 1
        try:
            return await self._request(rows)
        except AccessRefused as refused:
            self.settle(rows, refused.outcome)
            return []

    async def _request(self, rows: Sequence[int]) -> list[list[int]]:
        some = [self.batch.conversions[row] for row in rows]
        content = body(some, self.destination, validate_only=self.batch.dry_run).encode()
        response = await _ask(self.connection, "POST", "/v1/events:ingest", content)
        if response.status_code == 200:
            self.settle(rows, self._receipt(answers.json_of(response)))
            return []
        return self._refused(_Refusal.read(response), rows)

    def _receipt(self, answer: Mapping[str, Any]) -> Outcome:
        if self.batch.dry_run:  # only checked: there is nothing to confirm
            return Outcome.completed(None)
        request_id = answer.get("requestId")
        if not isinstance(request_id, str) or not request_id:
            raise ProviderTransientError("Google's response contains no request id.", "NO_REQUEST_ID")
        return Outcome.completed(request_id, awaits_confirmation=True)

    def _refused(self, refusal: _Refusal, rows: Sequence[int]) -> list[list[int]]:
        if refusal.status in (401, 403):
            self.settle(rows, refusal.outcome(refusal.code, Category.AUTH))
            return []
        if refusal.status != 400 and not refusal.spoken:
            raise ProviderTransientError(
                f"The response ({refusal.status}) is not from Google.", f"HTTP_{refusal.status}"
            )
        named = {at: code for at, code in refusal.rows.items() if at < len(rows)}
        for at, code in named.items():
            self.settle([rows[at]], refusal.outcome(code))
        if named:
            return [[row for at, row in enumerate(rows) if at not in named]]
        why = refusal.elsewhere or refusal.code
        if refusal.status != 400 or refusal.elsewhere or why in _OF_ALL or len(rows) == 1:
            self.settle(rows, refusal.outcome(why))
            return []
        return [list(rows[: len(rows) // 2]), list(rows[len(rows) // 2 :])]


@dataclass(frozen=True)
class _Refusal:
    """A response that is not a 200: a google.rpc.Status, with details."""

    status: int
    code: str
    spoken: bool  # has Google's format
    rows: Mapping[int, str]  # reasons by the position of the event
    elsewhere: str | None  # reasons that concern another part of the request
    retry_delay: timedelta | None
    request_id: str | None

    @classmethod
    def read(cls, response: httpx.Response) -> _Refusal:
        try:
            error = answers.json_of(response).get("error")
        except ProviderTransientError:
            error = None
        status = as_dict(error)
        rows: dict[int, str] = {}
        found: dict[str, Any] = {}
        for detail in as_dicts(status.get("details")):
            kind = str(detail.get("@type", "")).rpartition(".")[2]
            if kind == "BadRequest":
                _violations(detail, rows, found)
            else:
                found[kind] = detail
        code = found.get("ErrorInfo", {}).get("reason") or status.get("status")
        request_id = found.get("RequestInfo", {}).get("requestId")
        return cls(
            response.status_code,
            code_of(code) if code else f"HTTP_{response.status_code}",
            bool(status),
            rows,
            found.get("elsewhere"),
            duration(found.get("RetryInfo", {}).get("retryDelay")),
            request_id if isinstance(request_id, str) else None,
        )

    def outcome(self, code: str, category: Category = Category.VALIDATION) -> Outcome:
        if category is Category.AUTH:
            message = _AUTH.get(code, f"Google refuses the account or its credentials ({code}).")
            return Outcome(Verdict.FAILED, code, category, message, self.request_id)
        if code in _LATER:
            message = (
                f"Google has not registered the click or action yet ({code}). It is sent again in six hours."
            )
            return Outcome(Verdict.RETRY, code, category, message, self.request_id, GOOGLE_REGISTERS)
        return Outcome(
            Verdict.FAILED, code, category, f"Google refuses the conversion ({code}).", self.request_id
        )


def _expired(response: httpx.Response) -> bool:
    return response.status_code == 401 and _Refusal.read(response).code == "ACCESS_TOKEN_EXPIRED"


def _violations(detail: Mapping[str, Any], rows: dict[int, str], found: dict[str, Any]) -> None:
    for each in as_dicts(detail.get("fieldViolations")):
        reason = code_of(each.get("reason")) if each.get("reason") else "INVALID_ARGUMENT"
        if at := _EVENT.search(str(each.get("field", ""))):
            rows.setdefault(int(at[1]), reason)
        elif each.get("field"):
            found["elsewhere"] = reason


def body(
    conversions: Sequence[Conversion], destination: Mapping[str, Any], *, validate_only: bool = False
) -> str:
    """The request, as JSON of the interface's protobuf types."""
    events = []
    for each in conversions:
        more = google_rows.value(each, "currency")
        if each.user_data and (found := google_rows.people(each, "emailAddress", "phoneNumber")):
            more += f',"userData":{{"userIdentifiers":[{found}]}}'
        marked = "wb-" if each.order_id.isdecimal() else ""  # Google refuses an id that is only a number
        # The source is required, although the reference says otherwise. Clicks are made on the web.
        events.append(
            f'{{"transactionId":{text(marked + each.order_id)},"eventTimestamp":"{each.occurred_at.isoformat()}",'
            f'"eventSource":"WEB","adIdentifiers":{{"{each.click_type}":{text(each.click_id)}}}{more}}}'
        )
    check = ',"validateOnly":true' if validate_only else ""
    return f'{{"destinations":[{json.dumps(destination)}],"events":[{",".join(events)}],"encoding":"HEX"{check}}}'
