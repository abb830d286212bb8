"""Slots in Redis, if REDIS_URL is set: one sorted set per key, one member per slot, its expiry as the score.

Redis 5 or newer, or Valkey. A call is one script, for any number of slots, and uses the server's clock. If Redis
is unreachable, slow or returns an error, no slot is granted and no conversion is uploaded.

Limits. A Redis Cluster refuses the script, because the keys of one call may belong to different nodes: use one server,
with replicas if needed. Slots are lost when a replica takes over that had not received them, when a server without
persistence stops, and when an eviction policy (maxmemory-policy) removes their keys. Until the calls of lost slots have
ended, there may be more calls than the limit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import UUID

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from weighbridge.delivery.slots.base import Slot, SlotLimits, global_key, site_key
from weighbridge.delivery.slots.leased import LeasedSlots
from weighbridge.model.errors import ConfigError
from weighbridge.model.retry import REDIS_RETRIES

CALL_TIMEOUT = 1.0  # seconds for one call of Redis as a whole: delivery waits for it
CONNECTIONS = 8

# KEYS: each key once. ARGV: how long a slot lasts in ms, the limit of a site's key, the limit of a provider's key; then
# for each slot its token and the numbers of its two keys; the second is 0 without a limit. Returns 1 or 0 for each.
_ACQUIRE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl, per_site, per_provider = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local taken = {}
for i, key in ipairs(KEYS) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    taken[i] = redis.call('ZCARD', key)
end
local used, answer = {}, {}
for a = 4, #ARGV, 3 do
    local token, site, provider = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    if redis.call('ZSCORE', KEYS[site], token) then -- the same call once more: its first answer was lost
        answer[#answer + 1] = 1
    elseif taken[site] < per_site and (provider == 0 or taken[provider] < per_provider) then
        for _, i in ipairs(provider == 0 and {site} or {site, provider}) do
            redis.call('ZADD', KEYS[i], now + ttl, token)
            taken[i] = taken[i] + 1
            used[i] = true
        end
        answer[#answer + 1] = 1
    else
        answer[#answer + 1] = 0
    end
end
for i in pairs(used) do
    if redis.call('PTTL', KEYS[i]) < ttl then -- another process may have longer leases
        redis.call('PEXPIRE', KEYS[i], ttl)
    end
end
return answer
"""

# KEYS: pairs of a site's key and a provider's key. ARGV: a token for each pair.
_RELEASE = """
for i, token in ipairs(ARGV) do
    redis.call('ZREM', KEYS[2 * i - 1], token)
    redis.call('ZREM', KEYS[2 * i], token)
end
"""


class RedisSlots(LeasedSlots):
    """Semaphores in Redis; the key names are fixed."""

    backend = "redis"

    def __init__(self, url: str, limits: SlotLimits) -> None:
        """ConfigError if the address is invalid. It connects later."""
        super().__init__(limits)
        self._redis = _client(url)
        self._acquire = self._redis.register_script(_ACQUIRE)
        self._release_script = self._redis.register_script(_RELEASE)

    async def _exchange(self, releasing: Sequence[Slot], wanted: Sequence[Slot]) -> set[UUID]:
        if releasing:
            await self._release_slots(releasing)
        numbers: dict[str, int] = {}
        args: list[str | int] = [
            _milliseconds(self.limits.ttl),
            self.limits.per_site,
            self.limits.per_provider,
        ]
        for slot in wanted:
            site = numbers.setdefault(site_key(slot.key), len(numbers) + 1)
            provider = (
                numbers.setdefault(global_key(slot.key), len(numbers) + 1) if self.limits.per_provider else 0
            )
            args += [str(slot.token), site, provider]
        async with asyncio.timeout(CALL_TIMEOUT):
            answer = await self._acquire(keys=list(numbers), args=args)
        return {slot.token for slot, granted in zip(wanted, answer, strict=True) if granted}

    async def _release_slots(self, slots: Sequence[Slot]) -> None:
        keys = [key for each in slots for key in (site_key(each.key), global_key(each.key))]
        async with asyncio.timeout(CALL_TIMEOUT):
            await self._release_script(keys=keys, args=[str(each.token) for each in slots])

    async def _close(self) -> None:
        await self._redis.aclose()

    def _why(self, error: Exception) -> str:
        text = f"{type(error).__name__} {error}"
        return next((why for pattern, why in _REASONS if re.search(pattern, text)), "it returns an error")


# The reason that is logged for a failed call: the first match. Redis's own messages contain addresses and names.
_REASONS = (
    (
        r"^Authentic|^Authoriz|^NoPermission|NOPERM|can't run this command",
        "it refuses the user or password of REDIS_URL, or their permissions",
    ),
    (r"^BusyLoading|LOADING", "it is still loading its data"),
    (r"^ReadOnly|READONLY", "it is a read-only replica"),
    (r"^Cluster|^Moved|CROSSSLOT|CLUSTERDOWN", "it is a Redis Cluster; expected one server"),
    (r"^Timeout", "it does not respond in time"),
    (r"^Connection|^OSError|^BrokenPipe", "it is unreachable, or the connection was closed"),
)


def _client(url: str) -> Redis:
    complaint = _complaint(url)
    pool = None
    if complaint is None:
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS,
                timeout=CALL_TIMEOUT,
                socket_timeout=CALL_TIMEOUT,
                socket_connect_timeout=CALL_TIMEOUT,
                retry=Retry(NoBackoff(), REDIS_RETRIES, (exceptions.ConnectionError,)),
                protocol=2,  # no HELLO: older servers do not support it
            )
            pool.make_connection()  # type: ignore[no-untyped-call] # the options after the question mark are read here
        except (TypeError, ValueError, AttributeError, exceptions.RedisError):
            complaint = "an invalid option after the question mark"
    if complaint is not None or pool is None:
        # Raised here, without cause and address: both may contain the password.
        raise ConfigError(
            f"REDIS_URL: expected redis://user:password@host:6379/0, rediss://… or unix:///path, got {complaint}."
        )
    return Redis.from_pool(pool)


def _complaint(url: str) -> str | None:
    """The error of an address, without quoting it. redis-py treats a database that is not a number as 0."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (it is read, and may be none)
    except ValueError:
        return "an invalid address; a password that contains / # ? or @ must be percent-encoded"
    match parts.scheme:
        case "redis" | "rediss":
            if not re.fullmatch(r"/?\d*", parts.path):
                return "a database that is not a number"
            return None
        case "unix":
            return None if parts.path else "no path"
        case "":
            return "no scheme"
        case _:
            return "another scheme"


def _milliseconds(time: timedelta) -> int:
    return max(1, time // timedelta(milliseconds=1))
