"""A Postgres error → RetryLater, a fault of one row, or a bug."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from weighbridge.model.errors import LeaseLost, NoProject, ProcessingLocked, Refused, RetryLater

LEASE_LOST = "WB001"
CRASHED = "WB003"
LOCKED = "WB004"
NO_PROJECT = "WB005"
LOCK_HELD = "Another transaction holds a lock that this one needs: try again later."


class RowFault(Exception):
    """Postgres rejected a row of the batch: a constraint or a value. Split the batch to find it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Contention(RetryLater):
    """Two transactions blocked each other, or a parent is not committed yet; a retry may succeed at once.

    The writer of batches retries the batch at once; for all others it is an ordinary temporary failure.
    """

    def __init__(self, message: str, *, parent: bool) -> None:
        super().__init__("deadlock", f"The database asked to try again: {message}.")
        self.parent = parent


@contextmanager
def translated() -> Iterator[None]:
    """Turns psycopg's errors into the three ways a step can fail, and into RowFault and Contention."""
    try:
        yield
    except psycopg.Error as error:
        meaning = _meaning(error)
        if meaning is error:
            raise  # not "from error": it would be its own cause
        raise meaning from error


def _meaning(error: psycopg.Error) -> Exception:
    state = error.sqlstate or ""
    if state == LEASE_LOST:
        return LeaseLost(_primary(error))
    if state == LOCKED:
        return ProcessingLocked()
    if state == NO_PROJECT:
        return NoProject()
    if state == CRASHED:
        return RetryLater(
            "connection", "The database crashed and recovered. Work that may be lost is repeated."
        )
    if state == "55P03":
        return RetryLater("lock", LOCK_HELD)
    if state in ("40P01", "40001", "23503"):  # deadlock, serialisation, parent in flight
        return Contention(_primary(error), parent=state == "23503")
    if state == "42501":
        return Refused("permission_denied", f"The database refused the write: {_primary(error)}.")
    if state in ("57014", "25P03", "25P04"):  # statement or transaction timeout
        return RetryLater("timeout", f"The database took too long: {_primary(error)}.")
    if state[:2] in ("21", "22", "23", "54", "P0"):  # values, constraints, limits, what triggers raise
        return RowFault(*_row_fault(error))
    if state[:2] in ("08", "53", "57") or isinstance(error, psycopg.OperationalError):
        return RetryLater("connection", "The connection to the database was lost.")
    return error


def _row_fault(error: psycopg.Error) -> tuple[str, str]:
    """A code and a sentence. Never Postgres's DETAIL: it contains the row's values."""
    constraint = error.diag.constraint_name
    if error.sqlstate == "23505":
        return "unique_violation", f"Another row already has this value ({constraint})."
    if error.sqlstate == "23514":
        return "check_violation", f"The row violates the constraint {constraint}."
    if error.sqlstate == "23502":
        return "missing_value", f"The column {error.diag.column_name} must have a value."
    if error.sqlstate == "21000":
        return "unique_violation", "Two rows of this file have the key of the same production row."
    return "refused_by_database", f"Postgres rejected the row (SQLSTATE {error.sqlstate})."


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or type(error).__name__
