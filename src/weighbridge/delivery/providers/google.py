"""Shared by both Google adapters: credentials, access tokens, requests, one result per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import httpx

from weighbridge.delivery.providers import answers, google_oauth
from weighbridge.delivery.providers.base import Batch, Credentials, Needed
from weighbridge.delivery.providers.google_oauth import AccessRefused, Tokens
from weighbridge.model.delivery import Outcome, ProviderTransientError


@dataclass
class Connection:
    """Requests with an access token. A token that Google no longer accepts is renewed once."""

    http: httpx.AsyncClient
    base_url: str
    tokens: Tokens = field(repr=False)
    credentials: Credentials
    now: datetime | None
    renewed: bool = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        expired: Callable[[httpx.Response], bool],
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """`expired`: whether a response means that the token has expired. So does a 401 for an older token."""
        token, fresh = await self.tokens.get(self.credentials, self.http, self.now)
        while True:
            sent = {**(headers or {}), "authorization": f"Bearer {token}", "content-type": "application/json"}
            response = await answers.request(
                self.http, method, self.base_url + path, headers=sent, content=content
            )
            unauthorised = response.status_code == 401 and not fresh
            if response.status_code == 200 or self.renewed or not (unauthorised or expired(response)):
                return response
            self.renewed = True
            token, fresh = await self.tokens.get(self.credentials, self.http, self.now, fresh=True)


@dataclass
class Sending(ABC):
    """One `send`: as many requests as necessary, and a result for each row."""

    batch: Batch
    connection: Connection
    results: list[Outcome | ProviderTransientError] = field(init=False)

    def __post_init__(self) -> None:
        self.results = [answers.NOT_SENT] * len(self.batch.conversions)

    @abstractmethod
    async def send(self) -> None: ...

    def settle(self, rows: Iterable[int], result: Outcome | ProviderTransientError) -> None:
        for row in rows:
            self.results[row] = result


class Google(ABC):
    needs: Sequence[Needed]

    def __init__(self, *, base_url: str, token_url: str | None) -> None:
        self._base_url = base_url.rstrip("/")
        self._tokens = Tokens(token_url or google_oauth.token_url(self._base_url))

    async def send(self, batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        if wrong := answers.lacking(batch.credentials, self.needs):
            return answers.whole(batch, wrong)
        try:
            sending = self.sending(batch, self.connect(http, batch.credentials, batch.now))
        except AccessRefused as refused:
            return answers.whole(batch, refused.outcome)
        await sending.send()
        return answers.settled(sending.results)

    @abstractmethod
    def sending(self, batch: Batch, connection: Connection) -> Sending:
        """Raises AccessRefused if the credentials contain an invalid value."""

    def connect(self, http: httpx.AsyncClient, credentials: Credentials, now: datetime | None) -> Connection:
        return Connection(http, self._base_url, self._tokens, credentials, now)
