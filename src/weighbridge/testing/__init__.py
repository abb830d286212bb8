"""Test tools for authors of pipelines and providers; also used by the demo and the benchmarks.

exports         generated export files
    _spec       what to generate: platform, size, quirks
    _names      names, ids and translated headers
    _facts      the numbers, as columns
    _layouts    the columns of each platform; _judgments and _keywords: of their pipelines
    _text       columns → the bytes of a file
fake_providers  a fake of each built-in provider; __main__ runs one as a process
    _server     the HTTP server that they share
    _google_ads, _google_datamanager, _meta, _tiktok, _webhook  one fake each
    _google_oauth  access tokens and errors of both Google fakes
"""

from weighbridge.testing.fake_providers import (
    FakeGoogleAds,
    FakeGoogleDataManager,
    FakeMeta,
    FakeTikTok,
    FakeWebhook,
    Fault,
)

__all__ = ["FakeGoogleAds", "FakeGoogleDataManager", "FakeMeta", "FakeTikTok", "FakeWebhook", "Fault"]
