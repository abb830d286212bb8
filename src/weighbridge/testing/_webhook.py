"""A webhook receiver that performs the checks of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

from weighbridge.testing._server import FakeServer, ReceivedRequest, Reply

SECRET = "whsec_" + base64.b64encode(b"the fake's own secret, not yours").decode()
_TOLERANCE = 300.0


class FakeWebhook(FakeServer):
    name = "webhook"

    def __init__(self, *, secrets: Sequence[str] = (SECRET,), **more: Any) -> None:
        super().__init__(**more)
        self.secrets = secrets  # a message is valid if one of them signed it

    def answer(self, call: ReceivedRequest) -> Reply:
        if call.method != "POST":
            return Reply(405, {"error": "expected POST"})
        if not self._is_signed(call):
            return Reply(401, {"error": "the signature is not good"})
        body = call.body
        if not isinstance(body, dict) or not {"type", "timestamp", "data"} <= body.keys():
            return Reply(400, {"error": "expected type, timestamp and data"})
        message = call.headers["webhook-id"]
        known = body["data"].get("order_id", message) if isinstance(body["data"], dict) else message
        if codes := self.refusals.get(known):
            return Reply(
                int(codes[0]), {"error": f"refused: {call.raw.decode()}"}
            )  # some receivers quote the whole message
        self.take(known, message)
        return Reply(204)

    def _is_signed(self, call: ReceivedRequest) -> bool:
        message, seconds = call.headers.get("webhook-id"), call.headers.get("webhook-timestamp", "")
        if not message or not seconds.isdecimal():
            return False
        if self.clock is not None and abs(self.clock() - int(seconds)) > _TOLERANCE:
            return False
        signed = b".".join((message.encode(), seconds.encode(), call.raw))
        given = [sign.partition(",") for sign in call.headers.get("webhook-signature", "").split(" ")]
        for secret in self.secrets:
            key = base64.b64decode(secret.removeprefix("whsec_"))
            expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
            if any(version == "v1" and hmac.compare_digest(sign, expected) for version, _, sign in given):
                return True
        return False
