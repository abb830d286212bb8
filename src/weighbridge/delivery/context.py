"""Parts that delivering conversions needs: providers, credentials, slots and connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import httpx

from weighbridge.delivery.providers.base import Provider
from weighbridge.delivery.queue import RetryPolicy
from weighbridge.delivery.slots.base import SlotLimits, Slots
from weighbridge.delivery.vault import Vault
from weighbridge.uploads import context


@dataclass(frozen=True)
class Outbound:
    providers: Mapping[str, Provider]
    vault: Vault
    slots: Slots
    http: httpx.AsyncClient
    limits: SlotLimits = field(default_factory=SlotLimits)
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    full_counts: bool = True  # the breaker counts "no free slot" as a failure

    @property
    def lease(self) -> timedelta:
        """The lease of a call. It is not renewed: a call ends or times out well before."""
        return self.limits.ttl


@dataclass(frozen=True, kw_only=True)
class Context(context.Context):
    outbound: Outbound | None = None  # None: the vault key is not set, and nothing is delivered
