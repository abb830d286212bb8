"""The delivery status of a site and provider, as JSON and as a table, for `sites show` and `providers status`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.delivery.conversions import GroupStatus

_CIRCUITS = {"CLOSED": "[green]closed[/]", "OPEN": "[red]open[/]", "HALF_OPEN": "[yellow]half open[/]"}


def to_json(group: GroupStatus, keys: Collection[str] | None) -> dict[str, Any]:
    """A group as `--json` prints it, with the API's field names. `keys`: the vault's key ids, None if it has no key."""
    credentials = None
    if group.credentials_version is not None:
        credentials = {
            "version": group.credentials_version,
            "key_id": group.key_id,
            "key_known": group.key_id in (keys or ()),
            "refused_at": group.refused_at,
            "refused_code": group.refused_code,
        }
    totals = ("attempts_total", "completed_total", "failed_total", "retry_total")
    return {
        "site_id": group.site_id,
        "site_name": group.site_name,
        "provider": group.provider_key,
        "in_use": group.in_use,
        "circuit": {
            "state": group.state,
            "failure_count": group.failure_count,
            "next_probe_at": group.next_probe_at,
        },
        "paused_until": group.paused_until,
        "waiting": group.waiting,
        "in_call": group.in_call,
        "failed": group.failed,
        "credentials": credentials,
        "totals": {name: getattr(group, name) for name in totals},
    }


def print_status(groups: Sequence[GroupStatus], keys: Collection[str] | None) -> None:
    """Print a row for each group; below it what blocks deliveries and how to fix it."""
    from rich.markup import escape

    from weighbridge.cli.table import Row, print_rows

    numbers = ("waiting", "in call", "failed", "delivered")
    rows = [
        Row(
            [
                *(escape(group.site_name), group.provider_key, _CIRCUITS[group.state]),
                *(_counted(group.waiting), f"{group.in_call:,}", _counted(group.failed)),
                f"{group.completed_total:,}",
            ],
            _remarks(group, keys),
        )
        for group in groups
    ]
    print_rows(["site", "provider", "circuit", *numbers], rows, folded="site", right=numbers)


def key_ids(app: App) -> tuple[str, ...] | None:
    """The key ids of the vault; None if it has no key."""
    return app.ctx.outbound.vault.key_ids if app.ctx.outbound else None


def _remarks(group: GroupStatus, keys: Collection[str] | None) -> list[str]:
    found = []
    if group.state != "CLOSED" and group.next_probe_at is not None:
        times = f"{counted(group.failure_count, 'failure')} in a row"
        found.append(f"{times}; next probe {group.next_probe_at:%Y-%m-%d %H:%M:%S}.")
    if group.paused_until is not None:
        found.append(f"Paused until {group.paused_until:%Y-%m-%d %H:%M:%S} at the provider's request.")
    if problem := _credentials_problem(group, keys):
        found.append(problem)
    if not group.in_use:
        found.append("New sales are not sent to this provider.")
    return found


def _credentials_problem(group: GroupStatus, keys: Collection[str] | None) -> str | None:
    """The problem with the group's credentials, if any."""
    enter = f"weighbridge providers credentials {group.site_id} {group.provider_key}"
    if group.credentials_version is None:
        return f"No credentials: {enter}" if group.in_use or group.waiting else None
    if group.refused_at is not None:
        code = f" ({group.refused_code})" if group.refused_code else ""
        return f"Credentials refused since {group.refused_at:%Y-%m-%d %H:%M}{code}: {enter}"
    if keys is not None and group.key_id not in keys:
        return f"Credentials cannot be read, the key {group.key_id} is missing: weighbridge vault status"
    return None


def _counted(count: int) -> str:
    from weighbridge.delivery.conversions import MOST_COUNTED

    return f"{count:,}{'+' if count >= MOST_COUNTED else ''}"
