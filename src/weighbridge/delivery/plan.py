"""The plan of one run: which groups send how many rows, and why the others send none.

A run carries it out; the forecast and the dry run show it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from weighbridge.delivery.context import Outbound
from weighbridge.delivery.queue import DueGroup
from weighbridge.model.fair_shares import most_overdue_first, shares

COUNTED = 10_000  # rows of a group that count for its share; longer groups have the same weight


@dataclass
class Plan:
    """Every group with due rows: it probes, has a share (which may be 0), or is skipped for a reason.

    The caller asks the breaker about each `next_probe`, and adds the answer with `add_probe`; then `shares` are final.
    """

    limit: int
    probes: list[tuple[DueGroup, int]] = field(default_factory=list)
    skipped: dict[DueGroup, str] = field(default_factory=dict)
    _closed: list[DueGroup] = field(default_factory=list)
    _to_probe: deque[DueGroup] = field(default_factory=deque)

    @classmethod
    def of(cls, waiting: Sequence[DueGroup], outbound: Outbound, limit: int) -> Plan:
        plan = cls(limit)
        to_probe: list[DueGroup] = []
        for group in waiting:
            if reason := blocked_by(group, outbound):
                plan.skipped[group] = reason
            elif group.state == "CLOSED":
                plan._closed.append(group)
            elif group.probe_due:
                to_probe.append(group)
            else:
                plan.skipped[group] = "circuit_open"
        plan._to_probe.extend(most_overdue_first(to_probe))
        return plan

    def next_probe(self) -> DueGroup | None:
        """The next group to probe, until the limit is used up."""
        return self._to_probe.popleft() if self._to_probe and self._left_for_probes > 0 else None

    def add_probe(self, group: DueGroup, rows: int | None) -> None:
        """How many rows the probe of this group may send; None: no probe now."""
        if rows is None:
            self.skipped[group] = "being_probed"
        else:
            self.probes.append((group, min(rows, group.queued_count, self._left_for_probes)))

    @property
    def shares(self) -> list[tuple[DueGroup, int]]:
        """The rest of the limit, divided between the groups whose breaker is closed."""
        return shares(self._closed, self.limit - self._probed)

    @property
    def open_groups(self) -> list[DueGroup]:
        """Groups whose breaker is open, and whose next probe is not due."""
        return [group for group, reason in self.skipped.items() if reason == "circuit_open"]

    @property
    def _left_for_probes(self) -> int:
        """Half of the limit is kept for closed groups, however many are to be probed."""
        return ((self.limit + 1) // 2 if self._closed else self.limit) - self._probed

    @property
    def _probed(self) -> int:
        return sum(rows for _, rows in self.probes)


def blocked_by(group: DueGroup, outbound: Outbound) -> str | None:
    """Why a group can send nothing, apart from its breaker."""
    if group.provider_key not in outbound.providers:
        return "unknown_provider"  # the rows wait for a process that has this provider
    if group.unused:
        return "not_in_use"
    if group.key_id is None:
        return "no_credentials"
    if group.key_id not in outbound.vault.key_ids:
        return "credentials_unreadable"
    if group.refused:
        return "credentials_refused"
    if group.paused:
        return "provider_paused"
    return None
