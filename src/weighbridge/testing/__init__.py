"""Test tools for authors of pipelines and providers; also used by the demo and the benchmarks."""

from weighbridge.testing.fake_providers import (
    FakeGoogleAds,
    FakeGoogleDataManager,
    FakeMeta,
    FakeTikTok,
    FakeWebhook,
    Fault,
)

__all__ = ["FakeGoogleAds", "FakeGoogleDataManager", "FakeMeta", "FakeTikTok", "FakeWebhook", "Fault"]
