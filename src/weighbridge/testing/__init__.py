"""What authors of pipelines and providers test with, and what the demo and the bench are made of."""

from weighbridge.testing.fake_providers import (
    FakeGoogleAds,
    FakeGoogleDataManager,
    FakeMeta,
    FakeTikTok,
    FakeWebhook,
    Fault,
)

__all__ = ["FakeGoogleAds", "FakeGoogleDataManager", "FakeMeta", "FakeTikTok", "FakeWebhook", "Fault"]
