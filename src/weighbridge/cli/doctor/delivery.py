"""The checks of `weighbridge doctor` about deliveries: the vault's keys, credentials, groups in trouble, slots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

from weighbridge.cli.doctor.check import Check, failed, ok, skipped, warning
from weighbridge.cli.doctor.database import Question
from weighbridge.delivery import overview
from weighbridge.delivery.overview import Troubled
from weighbridge.delivery.slots.base import SlotKey, SlotLimits
from weighbridge.delivery.slots.redis import RedisSlots
from weighbridge.delivery.vault import VARIABLE, Vault
from weighbridge.model.errors import ConfigError
from weighbridge.model.pipeline import Pipeline
from weighbridge.postgres.pool import Tx
from weighbridge.settings import Settings

NEW_VAULT_KEY = "weighbridge vault key"
_NAMED = 5  # groups in trouble; the others are counted


def vault_key(settings: Settings) -> Check:
    """Can the keys be read? What they are is shown to nobody."""
    if not settings.vault_key or not settings.vault_key.get_secret_value():
        found = "None is set; it is needed only to deliver to ad platforms."
        return skipped("vault key", found, f"export {VARIABLE}=$({NEW_VAULT_KEY})")
    try:
        keys = Vault.open(settings.vault_key.get_secret_value()).key_ids
    except ConfigError as error:
        mend = f"Put back the key that was in use, or make one: {NEW_VAULT_KEY}"
        return failed("vault key", str(error), mend)
    first, *others = keys
    behind = f"; {', '.join(others)} can still read" if others else ""
    return ok("vault key", f"{first} seals{behind}.")


def questions(settings: Settings) -> dict[str, Question]:
    """What the database is asked, once it has all migrations."""
    try:
        known = Vault.open(settings.vault_key.get_secret_value()).key_ids if settings.vault_key else ()
    except ConfigError:  # the vault's own check tells
        known = ()

    async def credentials(tx: Tx, _: Sequence[Pipeline]) -> Check:
        used = await overview.keys_in_use(tx)
        if not used:
            return ok("credentials", "No site has any yet.")
        lost = {key_id: count for key_id, count in used.items() if key_id not in known}
        if lost:
            told = "; ".join(f"{count:,} need the key {key_id}" for key_id, count in lost.items())
            mend = f"Put it back into {VARIABLE}, behind the first; or enter them anew."
            return failed("credentials", f"They cannot be read: {told}.", mend)
        return ok("credentials", f"{sum(used.values()):,}, and the vault has every key that they need.")

    return {"credentials": credentials, "deliveries": _deliveries}


async def _deliveries(tx: Tx, _: Sequence[Pipeline]) -> Check:
    """Is there a group to which nothing is sent? It waits by itself, so that this is no failure of the system."""
    found = await overview.troubled(tx)
    if not found:
        return ok("deliveries", "No credentials are refused, and no circuit is open.")
    told = [f"{each.provider_key} of {each.site_name}: {_why(each)}" for each in found[:_NAMED]]
    if len(found) > _NAMED:
        told.append(f"{len(found) - _NAMED:,} more: weighbridge providers status")
    first = found[0]
    mend = f"weighbridge providers credentials {first.site_id} {first.provider_key}"
    if not first.refused:
        mend = f"It is tried again by itself; at once: weighbridge providers reset {first.site_id} {first.provider_key}"
    return warning("deliveries", f"{'; '.join(told)}.", mend)


def _why(group: Troubled) -> str:
    if group.refused:
        return f"its credentials are refused{f' ({group.code})' if group.code else ''}"
    return f"its circuit is open, next probe {group.next_probe_at:%Y-%m-%d %H:%M:%S}"


async def slots(settings: Settings) -> Check:
    """Take a slot where calls to providers take theirs, and give it back."""
    if not settings.redis_url:
        return ok("slots", "Calls to providers are counted in Postgres.")
    mend = "Start Redis, or correct REDIS_URL; nothing is delivered without. Unset, Postgres does the same."
    try:
        tried = _Tried(settings.redis_url.get_secret_value(), SlotLimits(ttl=timedelta(seconds=10)))
    except ConfigError as error:
        return failed("slots", str(error), mend)
    try:
        [held] = await tried.acquire(
            [SlotKey(uuid4(), "doctor")]
        )  # a place of its own: nobody else waits for it
        if held is not None:
            await tried.release([held])
        trouble = tried.trouble
    finally:
        await tried.close()
    if held is None or trouble:
        return failed("slots", f"REDIS_URL: no slot can be had: {trouble or 'none is free'}.", mend)
    return ok("slots", "The Redis that REDIS_URL names gives a slot and takes it back.")


class _Tried(RedisSlots):
    """Says what went wrong in place of logging it."""

    trouble: str | None = None

    def _note(self, error: Exception | None) -> None:
        self.trouble = None if error is None else self._why(error)
