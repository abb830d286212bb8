"""Checks of `weighbridge doctor` for deliveries: vault keys, credentials, blocked groups, slots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

from weighbridge.cli.doctor.check import Check, failed, ok, skipped, warning
from weighbridge.cli.doctor.database import Question
from weighbridge.delivery import conversions, credential_queries
from weighbridge.delivery.conversions import BlockedGroup
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.slots.base import SlotLimits
from weighbridge.delivery.slots.redis import RedisSlots
from weighbridge.delivery.vault import VARIABLE, Vault
from weighbridge.model.errors import ConfigError
from weighbridge.model.pipeline import Pipeline
from weighbridge.postgres.transactions import Tx
from weighbridge.settings import Settings

NEW_VAULT_KEY = "weighbridge vault key"
_NAMED = 5  # blocked groups that are listed; the others are counted


def vault_key(settings: Settings) -> Check:
    """Check that the keys are valid. They are never shown."""
    if not settings.vault_key or not settings.vault_key.get_secret_value():
        found = "Not set. Needed only for deliveries to ad platforms."
        return skipped("vault key", found, f"export {VARIABLE}=$({NEW_VAULT_KEY})")
    try:
        keys = Vault.open(settings.vault_key.get_secret_value()).key_ids
    except ConfigError as error:
        fix = f"Restore the previous key, or create one: {NEW_VAULT_KEY}"
        return failed("vault key", str(error), fix)
    first, *others = keys
    older = f"; {', '.join(others)} only for reading" if others else ""
    return ok("vault key", f"{first} encrypts new credentials{older}.")


def questions(settings: Settings) -> dict[str, Question]:
    """The checks in a database that has all migrations."""
    try:
        known = Vault.open(settings.vault_key.get_secret_value()).key_ids if settings.vault_key else ()
    except ConfigError:  # reported by the check of the vault key
        known = ()

    async def credentials(tx: Tx, _: Sequence[Pipeline]) -> Check:
        used = await credential_queries.keys_in_use(tx)
        if not used:
            return ok("credentials", "No site has credentials yet.")
        lost = {key_id: count for key_id, count in used.items() if key_id not in known}
        if lost:
            missing = "; ".join(f"{count:,} need key {key_id}" for key_id, count in lost.items())
            fix = f"Add the key to {VARIABLE} after the first one, or enter the credentials again."
            return failed("credentials", f"Credentials cannot be read: {missing}.", fix)
        return ok("credentials", f"{sum(used.values()):,} stored; the vault has all their keys.")

    return {"credentials": credentials, "deliveries": _deliveries}


async def _deliveries(tx: Tx, _: Sequence[Pipeline]) -> Check:
    """Are any groups blocked? Only a warning: their conversions wait and are sent later."""
    found = await conversions.blocked_groups(tx)
    if not found:
        return ok("deliveries", "No credentials are refused and no circuit is open.")
    blocked = [f"{each.provider_key} of {each.site_name}: {_why(each)}" for each in found[:_NAMED]]
    if len(found) > _NAMED:
        blocked.append(f"{len(found) - _NAMED:,} more: weighbridge providers status")
    first = found[0]
    fix = f"weighbridge providers credentials {first.site_id} {first.provider_key}"
    if not first.refused:
        fix = f"Retried automatically; to retry now: weighbridge providers reset {first.site_id} {first.provider_key}"
    return warning("deliveries", f"{'; '.join(blocked)}.", fix)


def _why(group: BlockedGroup) -> str:
    if group.refused:
        return f"its credentials are refused{f' ({group.code})' if group.code else ''}"
    return f"its circuit is open, next probe {group.next_probe_at:%Y-%m-%d %H:%M:%S}"


async def slots(settings: Settings) -> Check:
    """Acquire and release a slot, as calls to providers do."""
    if not settings.redis_url:
        return ok("slots", "Concurrent calls to providers are limited with Postgres.")
    fix = (
        "Start Redis, or correct REDIS_URL; deliveries wait until then. Without REDIS_URL, Postgres is used."
    )
    try:
        probe = _ProbedSlots(settings.redis_url.get_secret_value(), SlotLimits(ttl=timedelta(seconds=10)))
    except ConfigError as error:
        return failed("slots", str(error), fix)
    try:
        [slot] = await probe.acquire([GroupKey(uuid4(), "doctor")])  # a key that no delivery uses
        if slot is not None:
            await probe.release([slot])
        trouble = probe.trouble
    finally:
        await probe.close()
    if slot is None or trouble:
        return failed("slots", f"REDIS_URL: no slot can be acquired: {trouble or 'none is free'}.", fix)
    return ok("slots", "Redis grants and releases a slot.")


class _ProbedSlots(RedisSlots):
    """Keeps the error instead of logging it."""

    trouble: str | None = None

    def _note(self, error: Exception | None) -> None:
        self.trouble = None if error is None else self._why(error)
