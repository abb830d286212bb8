"""A fake of each built-in provider: a real server with the documented wire format, for your own tests.

    with FakeMeta() as fake:
        MetaCapi(base_url=fake.url)

`testing._server` describes the functions of all fakes. `python -m weighbridge.testing meta_capi` runs one as a process.
"""

from __future__ import annotations

from weighbridge.testing._google_ads import FakeGoogleAds
from weighbridge.testing._google_datamanager import FakeGoogleDataManager
from weighbridge.testing._meta import FakeMeta
from weighbridge.testing._server import FakeServer, Fault, ReceivedRequest
from weighbridge.testing._tiktok import FakeTikTok
from weighbridge.testing._webhook import FakeWebhook

FAKES: dict[str, type[FakeServer]] = {
    fake.name: fake for fake in (FakeGoogleAds, FakeGoogleDataManager, FakeMeta, FakeTikTok, FakeWebhook)
}

__all__ = [
    "FAKES",
    "FakeGoogleAds",
    "FakeGoogleDataManager",
    "FakeMeta",
    "FakeServer",
    "FakeTikTok",
    "FakeWebhook",
    "Fault",
    "ReceivedRequest",
]
