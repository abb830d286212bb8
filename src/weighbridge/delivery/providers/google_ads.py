"""Conversions → Google Ads, by uploadClickConversions of its REST interface.

A request accepts its valid rows and reports an error for each of the others. A row counts as accepted only if the
response has a result for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from weighbridge.delivery.providers import answers, google_errors, google_oauth, google_rows
from weighbridge.delivery.providers.base import Batch, Needed
from weighbridge.delivery.providers.google import Connection, Google, Sending
from weighbridge.delivery.providers.google_errors import GoogleError, Handling
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
from weighbridge.model.retry import LONGEST_TOKEN_PAUSE

VERSION = "v26"
TOO_MANY = "TOO_MANY_CONVERSIONS_IN_REQUEST"
ROUNDS = 5  # maximum number of requests for rows that conflict with each other
_NUMBER, _CLIENT, _SECRET, _REFRESH, _LOGIN = google_oauth.NEEDS


class GoogleAds(Google):
    name = "google_ads"
    max_batch = 2000
    clicks = google_rows.CLICKS
    window: timedelta | None = timedelta(days=90)
    window_from = "click"
    needs = (
        _NUMBER,
        Needed("developer_token", "from the API centre of the manager account"),
        _CLIENT,
        _SECRET,
        _REFRESH,
        Needed(
            "conversion_action_resource_name",
            "customers/<account number>/conversionActions/<action number>",
            secret=False,
        ),
        _LOGIN,
    )

    def __init__(
        self, *, base_url: str = "https://googleads.googleapis.com", token_url: str | None = None
    ) -> None:
        super().__init__(base_url=base_url, token_url=token_url)

    def sending(self, batch: Batch, connection: Connection) -> _Upload:
        credentials = batch.credentials
        account = google_oauth.number(credentials, "customer_id")
        headers = {"developer-token": credentials["developer_token"]}
        if credentials.get("login_customer_id"):
            headers["login-customer-id"] = google_oauth.number(credentials, "login_customer_id")
        action = f"customers/{account}/conversionActions/{google_oauth.action(credentials)}"
        return _Upload(
            batch, connection, f"/{VERSION}/customers/{account}:uploadClickConversions", headers, action
        )


@dataclass
class _Upload(Sending):
    path: str
    headers: dict[str, str]
    action: str

    async def send(self) -> None:
        """Send all rows; then, in separate requests, the rows that conflicted with another row."""
        rows = google_rows.sendable(self.batch.conversions, self.results)
        for some in self._apart(await self._part(rows)):
            if not answers.in_time(self.batch, self.connection.http):
                return
            for row, errors in (await self._part(some)).items():  # not sent a third time
                self.results[row] = google_errors.outcome(errors, self.batch.conversions[row], None)

    def _apart(self, alone: dict[int, list[GoogleError]]) -> list[list[int]]:
        """Requests in which no two rows have the same key. If too many rows share a key, the rest waits for a later
        call.
        """
        if any(error.code == TOO_MANY for errors in alone.values() for error in errors):
            rows = list(alone)
            return [half for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]) if half]
        requests: list[list[int]] = []
        used_keys: list[set[object]] = []
        for row, errors in alone.items():
            conversion = self.batch.conversions[row]
            own = {conversion.order_id, (conversion.click_id, conversion.occurred_at.replace(microsecond=0))}
            request_index = next(
                (at for at, others in enumerate(used_keys) if not own & others), len(used_keys)
            )
            if request_index == ROUNDS:
                message = "The row waits for other rows with the same key."
                self.results[row] = Outcome.retry(errors[0].code, message, counts=False)
                continue
            if request_index == len(used_keys):
                requests.append([])
                used_keys.append(set())
            requests[request_index].append(row)
            used_keys[request_index] |= own
        return requests

    async def _part(self, rows: Sequence[int]) -> dict[int, list[GoogleError]]:
        """One request. Returns the rows without an outcome, which are to be sent again without the others."""
        if not rows:
            return {}
        try:
            return await self._request(rows)
        except AccessRefused as refused:
            self.settle(rows, refused.outcome)
        except ProviderTransientError as error:
            self.settle(rows, error)
        return {}

    async def _request(self, rows: Sequence[int]) -> dict[int, list[GoogleError]]:
        conversions = self.batch.conversions
        content = body(
            [conversions[row] for row in rows], self.action, validate_only=self.batch.dry_run
        ).encode()
        response, errors, request_id = await self._ask(content)
        if response.status_code != 200:
            return self._refused(response, rows, errors, request_id)
        return self._row_results(answers.json_of(response), rows, request_id)

    async def _ask(self, content: bytes) -> tuple[httpx.Response, list[GoogleError], str | None]:
        """The response; its errors, if it is not a 200; and its id."""
        response = await self.connection.request(
            "POST", self.path, content=content, headers=self.headers, expired=_expired
        )
        errors, error_request_id = _errors(response) if response.status_code != 200 else ([], None)
        request_id = response.headers.get("x-goog-request-id") or response.headers.get("request-id")
        return response, errors, request_id or error_request_id

    def _refused(
        self, response: httpx.Response, rows: Sequence[int], errors: list[GoogleError], request_id: str | None
    ) -> dict[int, list[GoogleError]]:
        """A response to the whole request: no row was accepted. Raises for temporary errors."""
        status = response.status_code
        _raise_for_limit(errors, answers.retry_after(response, self.batch.now))
        answers.raise_for_retryable(response, self.batch.now)
        if status in (401, 403) or any(error.handling is Handling.AUTH for error in errors):
            self.settle(rows, _auth(status, errors, request_id))
            return {}
        if errors and all(error.family == "internalError" for error in errors):
            raise ProviderTransientError(google_errors.sentence(errors[0]), errors[0].code)
        if not errors and status != 400:
            raise ProviderTransientError(f"The response ({status}) is not from Google.", f"HTTP_{status}")
        if any(error.code == TOO_MANY for error in errors) and len(rows) > 1:
            return dict.fromkeys(rows, errors)
        named, nameless = _by_row(errors, len(rows))
        if nameless or not named:
            named = dict.fromkeys(range(len(rows)), nameless or [GoogleError("", "INVALID_ARGUMENT")]) | named
        for at, own in named.items():
            self.results[rows[at]] = google_errors.outcome(own, self.batch.conversions[rows[at]], request_id)
        return {row: [GoogleError("", "NOT_TAKEN")] for at, row in enumerate(rows) if at not in named}

    def _row_results(
        self, answer: dict[str, Any], rows: Sequence[int], request_id: str | None
    ) -> dict[int, list[GoogleError]]:
        """The result of each row: its errors, or success."""
        failure = answer.get("partialFailureError")
        errors, error_request_id = (
            google_errors.errors_of(failure) if isinstance(failure, dict) else ([], None)
        )
        if job := answer.get("jobId"):
            error_request_id = error_request_id or f"job:{job}"
        done = Outcome.completed(request_id or error_request_id)
        results = answer.get("results")
        accepted = results if isinstance(results, list) else []
        by_row, nameless = _by_row(errors, len(rows))
        # A dry run returns no results: a row without an error is valid.
        checked = self.batch.dry_run and not nameless and (not failure or bool(errors))
        missing = _unproven(nameless)
        alone: dict[int, list[GoogleError]] = {}
        for at, row in enumerate(rows):
            own = by_row.get(at)
            if own is None:
                self.results[row] = done if checked or (at < len(accepted) and accepted[at]) else missing
            elif google_errors.worst(own).handling is Handling.ALONE:
                alone[row] = own
            else:
                self.results[row] = google_errors.outcome(own, self.batch.conversions[row], done.request_id)
        return alone


def body(conversions: Sequence[Conversion], action: str, *, validate_only: bool = False) -> str:
    """The request, as JSON of the interface's protobuf types."""
    action = text(action)
    rows = []
    for each in conversions:
        more = google_rows.value(each, "currencyCode")
        if each.user_data and (found := google_rows.people(each, "hashedEmail", "hashedPhoneNumber")):
            more += f',"userIdentifiers":[{found}]'
        rows.append(
            f'{{"{each.click_type}":{text(each.click_id)},"conversionAction":{action},'
            f'"conversionDateTime":"{each.occurred_at.isoformat(" ", "seconds")}",'
            f'"orderId":{text(each.order_id)}{more}}}'
        )
    check = ',"validateOnly":true' if validate_only else ""
    return f'{{"conversions":[{",".join(rows)}],"partialFailure":true{check}}}'


def _expired(response: httpx.Response) -> bool:
    return any(error.code == "OAUTH_TOKEN_EXPIRED" for error in _errors(response)[0])


def _errors(response: httpx.Response) -> tuple[list[GoogleError], str | None]:
    """The errors of a response that is not a 200; none if it has another format than Google's."""
    try:
        status = answers.json_of(response).get("error")
    except ProviderTransientError:
        return [], None
    if not isinstance(status, dict):
        return [], None
    errors, request_id = google_errors.errors_of(status)
    if not errors and (code := google_errors.code_of(status.get("status"))) != "UNKNOWN":
        errors = [GoogleError("", code)]
    return errors, request_id


def _raise_for_limit(errors: Sequence[GoogleError], after: timedelta | None) -> None:
    for error in errors:
        if error.handling is Handling.LIMITED:
            wait = error.retry_delay or after
            raise ProviderRateLimitError(
                google_errors.sentence(error),
                error.code,
                wait,
                whole_provider=error.developer_wide,
                pause=min(wait, LONGEST_TOKEN_PAUSE) if wait and error.developer_wide else None,
            )


def _auth(status: int, errors: Sequence[GoogleError], request_id: str | None) -> Outcome:
    error = next((each for each in errors if each.handling is Handling.AUTH), None)
    code = error.code if error else f"HTTP_{status}"
    message = (
        google_errors.sentence(error)
        if error
        else f"Google refuses the account or its credentials ({status})."
    )
    return Outcome(Verdict.FAILED, code, Category.AUTH, message, request_id)


def _by_row(
    errors: Iterable[GoogleError], rows: int
) -> tuple[dict[int, list[GoogleError]], list[GoogleError]]:
    """The errors by the position of their row in the request, and the errors that name no row."""
    named: dict[int, list[GoogleError]] = {}
    nameless = []
    for error in errors:
        if error.row is None or error.row >= rows:
            nameless.append(error)
        else:
            named.setdefault(error.row, []).append(error)
    return named, nameless


def _unproven(nameless: Sequence[GoogleError]) -> Outcome:
    """The outcome of a row that the response does not mention. Google may have accepted it, and deduplicates by order
    id.
    """
    for error in nameless:
        if error.handling is Handling.LIMITED:
            return Outcome.retry(
                error.code, google_errors.sentence(error), Category.RATE_LIMIT, error.retry_delay
            )
    code = nameless[0].code if nameless else "NO_RESULT"
    return Outcome.retry(code, f"Google's response does not say whether it accepted this row ({code}).")
