"""Shared by both Google fakes: access tokens, and errors in the format of google.rpc.Status."""

from __future__ import annotations

from collections import deque
from typing import Any

from weighbridge.testing._server import DATA, FakeServer, ReceivedRequest, Reply

STATUS = {
    400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    403: ("PERMISSION_DENIED", "The caller does not have permission"),
    404: ("NOT_FOUND", "Requested entity was not found."),
    429: ("RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    500: ("INTERNAL", "Internal error encountered."),
    503: ("UNAVAILABLE", "The service is currently unavailable."),
    504: ("DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
}


class FakeGoogle(FakeServer):
    """POST /token, in addition to the provider's own paths. The refresh token "revoked" and the secret "wrong" do not
    work.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.revoked = {"revoked"}
        self.tokens_given = 0
        self._good: set[str] = set()
        self._expired: set[str] = set()
        self._words: deque[Reply] = deque()

    def expire_tokens(self) -> None:
        """Invalidate all tokens issued so far."""
        self._expired |= self._good
        self._good.clear()

    def say(self, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Answer the next request with conversions with exactly this response; several calls queue several responses.
        Nothing of it is stored.
        """
        self._words.append(Reply(status, body, headers or {}))

    def kind(self, call: ReceivedRequest) -> str:
        return "token" if call.path == "/token" else DATA

    def answer(self, call: ReceivedRequest) -> Reply:
        if call.path == "/token":
            return self._token(call)
        if refusal := self._unwelcome(call):
            return refusal
        if self._words and self.kind(call) == DATA:
            return self._words.popleft()
        return self.spoken(call)

    def spoken(self, call: ReceivedRequest) -> Reply:
        """The response to a request with a valid token."""
        raise NotImplementedError

    def no_token(self, call: ReceivedRequest, *, expired: bool) -> Reply:
        """The response to a request without a token."""
        raise NotImplementedError

    def _unwelcome(self, call: ReceivedRequest) -> Reply | None:
        token = call.headers.get("authorization", "").removeprefix("Bearer ")
        return None if token in self._good else self.no_token(call, expired=token in self._expired)

    def _token(self, call: ReceivedRequest) -> Reply:
        form = call.body if isinstance(call.body, dict) else {}
        if call.method != "POST" or form.get("grant_type") != "refresh_token":
            return _denied(400, "unsupported_grant_type", "Invalid grant_type")
        if not form.get("client_id") or form.get("client_secret", "wrong") == "wrong":
            return _denied(401, "invalid_client", "The OAuth client was not found.")
        if not form.get("refresh_token") or form["refresh_token"] in self.revoked:
            return _denied(400, "invalid_grant", "Token has been expired or revoked.")
        self.tokens_given += 1
        token = f"ya29.fake-{self.tokens_given}"
        self._good.add(token)
        return Reply(200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"})


def status_body(status: int, *details: dict[str, Any], message: str | None = None) -> dict[str, Any]:
    name, default = STATUS.get(status, ("UNKNOWN", "Unknown error."))
    return {
        "error": {"code": status, "message": message or default, "status": name, "details": list(details)}
    }


def _denied(status: int, error: str, description: str) -> Reply:
    return Reply(status, {"error": error, "error_description": description})
