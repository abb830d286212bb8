"""The states of an upload. There are no other states and moves.

    pending ──claim──▶ processing ──stage──▶ staging_complete ──promote──▶ promoting
       ▲                   │                        │                         │
       └──────release──────┘◀───────restage─────────┴──────restage────────────┤
                                    ▲                                         │
                                    └───────────────release───────────────────┤
    any live state ──fail──▶ failed        completed ◀──complete──────────────┤
    failed, partial ──retry──▶ pending       partial ◀──complete_partially────┘

The database's guard trigger reads the same table (`weighbridge.moves`); a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    PENDING = "pending"  # stored, waiting for a worker
    PROCESSING = "processing"  # being parsed, checked and staged
    STAGING_COMPLETE = "staging_complete"  # every row staged or rejected, waiting for promotion
    PROMOTING = "promoting"  # being written to production
    COMPLETED = "completed"  # every valid row is in production
    PARTIAL = "partial"  # a valid row failed, or force_partial accepted a file with too few valid rows
    FAILED = "failed"  # stays so until an operator retries it


LIVE = frozenset({Status.PENDING, Status.PROCESSING, Status.STAGING_COMPLETE, Status.PROMOTING})
TERMINAL = frozenset(Status) - LIVE


@dataclass(frozen=True)
class Move:
    """One move of the state machine. Only an operator's move leaves a terminal state."""

    verb: str
    sources: frozenset[Status]
    target: Status
    operator: bool = False


def _move(verb: str, sources: set[Status], target: Status, *, operator: bool = False) -> tuple[str, Move]:
    return verb, Move(verb, frozenset(sources), target, operator)


MOVES: dict[str, Move] = dict(
    [
        _move("claim", {Status.PENDING}, Status.PROCESSING),
        _move("stage", {Status.PROCESSING}, Status.STAGING_COMPLETE),
        _move("promote", {Status.STAGING_COMPLETE}, Status.PROMOTING),
        _move("complete", {Status.PROMOTING}, Status.COMPLETED),
        _move("complete_partially", {Status.PROMOTING}, Status.PARTIAL),
        _move("release_parse", {Status.PROCESSING}, Status.PENDING),
        _move("release_promotion", {Status.PROMOTING}, Status.STAGING_COMPLETE),
        _move("restage", {Status.STAGING_COMPLETE, Status.PROMOTING}, Status.PENDING),
        _move("fail", set(LIVE), Status.FAILED),
        _move("retry", {Status.FAILED, Status.PARTIAL}, Status.PENDING, operator=True),
    ]
)
