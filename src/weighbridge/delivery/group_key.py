"""The key of a group: a site and a provider. Shares, slots, credentials and the breaker belong to groups."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class GroupKey(NamedTuple):
    site_id: UUID
    provider_key: str
