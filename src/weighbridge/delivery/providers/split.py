"""Sends a batch in halves if one bad row fails the whole request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from weighbridge.delivery.providers.answers import NOT_SENT, retry_of, settled
from weighbridge.model.delivery import Category, Conversion, Outcome, ProviderTransientError

# The result of a part: an outcome per row, or one outcome that refuses the whole part.
Sent = Callable[[Sequence[Conversion]], Awaitable[list[Outcome] | Outcome]]
MOST_CALLS = 64  # enough for three bad rows among a thousand; other rows wait for the next call


async def bisected(
    rows: Sequence[Conversion],
    send: Sent,
    most: int = MOST_CALLS,
    in_time: Callable[[], bool] = lambda: True,
) -> list[Outcome]:
    """One outcome per row, in order. Raises as `answers.settled`. After a connection error or the call's deadline, the
    remaining parts are not sent and get the same error.
    """
    found: dict[int, Outcome | ProviderTransientError] = {}
    parts = [range(len(rows))] if rows else []  # a stack
    calls = 0
    while parts:
        part = parts.pop()
        if calls == most or (calls and not in_time()):
            why = _unsettled(most) if calls == most else NOT_SENT
            found |= {at: why for left in (part, *parts) for at in left}
            break
        calls += 1
        try:
            result = await send([rows[at] for at in part])
        except ProviderTransientError as error:
            found |= dict.fromkeys(part, error)
            found |= {at: retry_of(error, sent=False) for left in parts for at in left}
            break
        if isinstance(result, list):
            found |= dict(zip(part, result, strict=True))
        elif len(part) == 1:
            found[part[0]] = result
        else:
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
    return settled([found[at] for at in range(len(rows))])


def _unsettled(calls: int) -> Outcome:
    return Outcome.retry(
        "BATCH_REFUSED",
        f"The provider refuses the batch, and {calls} requests did not show for which rows. "
        "The remaining rows are sent with a later call.",
        Category.VALIDATION,
        counts=False,
    )
