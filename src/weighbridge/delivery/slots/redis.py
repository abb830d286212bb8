"""Slots in Redis, if REDIS_URL is set: one sorted set per key, one member per slot, its expiry as the score.

Redis 5 or newer, or Valkey. A call is one script, whatever the number of places, and the time is the server's. If Redis
is unreachable, slow or returns an error, no slot is granted and no conversion is uploaded.

Its limits. The keys of one call lie in different slots of a Redis Cluster, which refuses such a script: use one server,
with replicas if you like. What a replica had not heard of when it took over is forgotten, as is what a server without
persistence had when it died; so are keys that an eviction policy (maxmemory-policy) takes away. Until the calls of then
have ended there may be more than the limit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import UUID

from redis import exceptions as trouble
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from weighbridge.delivery.slots.base import Held, SlotLimits
from weighbridge.delivery.slots.leased import Leased
from weighbridge.model.errors import ConfigError

CALL_TIMEOUT = 1.0  # seconds for one call of Redis as a whole: delivery waits for it
CONNECTIONS = 8

# KEYS: each key once. ARGV: how long a slot lasts in ms, the limit of a site's key, the limit of a provider's key; then
# for each place its token and the numbers of its two keys, the second 0 where there is no limit. Answers 1 or 0 each.
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

# KEYS: a site's key and a provider's by turns. ARGV: a token for each two.
_RELEASE = """
for i, token in ipairs(ARGV) do
    redis.call('ZREM', KEYS[2 * i - 1], token)
    redis.call('ZREM', KEYS[2 * i], token)
end
"""


class RedisSlots(Leased):
    """Semaphores in Redis; the key names are fixed."""

    keeper = "redis"

    def __init__(self, url: str, limits: SlotLimits) -> None:
        """ConfigError if the address is invalid. The connection is made later."""
        super().__init__(limits)
        self._redis = _client(url)
        self._acquire = self._redis.register_script(_ACQUIRE)
        self._release = self._redis.register_script(_RELEASE)

    async def _exchange(self, giving: Sequence[Held], wanted: Sequence[Held]) -> set[UUID]:
        if giving:
            await self._give(giving)
        numbers: dict[str, int] = {}
        args: list[str | int] = [
            _milliseconds(self.limits.ttl),
            self.limits.per_site,
            self.limits.per_provider,
        ]
        for held in wanted:
            site = numbers.setdefault(held.slot.site_key, len(numbers) + 1)
            provider = (
                numbers.setdefault(held.slot.global_key, len(numbers) + 1) if self.limits.per_provider else 0
            )
            args += [str(held.token), site, provider]
        async with asyncio.timeout(CALL_TIMEOUT):
            answer = await self._acquire(keys=list(numbers), args=args)
        return {held.token for held, granted in zip(wanted, answer, strict=True) if granted}

    async def _give(self, held: Sequence[Held]) -> None:
        keys = [key for each in held for key in (each.slot.site_key, each.slot.global_key)]
        async with asyncio.timeout(CALL_TIMEOUT):
            await self._release(keys=keys, args=[str(each.token) for each in held])

    async def _close(self) -> None:
        await self._redis.aclose()

    def _why(self, error: Exception) -> str:
        said = f"{type(error).__name__} {error}"
        return next((why for pattern, why in _REASONS if re.search(pattern, said)), "it returns an error")


# What is said of a call that failed: the first that is found. The words themselves have addresses and names in them.
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
                # Once more at once, over a new line: one of a server that was started anew looks as good as ever.
                retry=Retry(NoBackoff(), 1, (trouble.ConnectionError,)),
                protocol=2,  # no greeting that older servers do not know
            )
            pool.make_connection()  # type: ignore[no-untyped-call] # what stands behind the question mark is read only here
        except (TypeError, ValueError, AttributeError, trouble.RedisError):
            complaint = "an invalid option after the question mark"
    if complaint is not None or pool is None:
        # Raised out here, and without the address: it may have a password in it, and so may what redis-py says of it.
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
