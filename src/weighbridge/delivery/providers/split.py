"""Sends a batch in parts: without rows that cannot be sent, and in halves if one bad row fails the whole request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import repeat

from weighbridge.delivery.providers.answers import NOT_SENT, retry_of, settled
from weighbridge.model.delivery import Category, Conversion, Outcome, ProviderTransientError

# What came of a part: an outcome per row, or the one that refuses it as a whole.
Sent = Callable[[Sequence[Conversion]], Awaitable[list[Outcome] | Outcome]]
MOST_CALLS = 64  # enough for three bad rows among a thousand; more of them wait for the next call


async def sifted(
    rows: Sequence[Conversion],
    unsendable: Callable[[Conversion], Outcome | None],
    send: Callable[[Sequence[Conversion]], Awaitable[Iterable[Outcome]]],
) -> list[Outcome]:
    """One outcome per row, in their order: what `unsendable` refuses is not sent. Raises where nothing was settled."""
    refused = [unsendable(row) for row in rows]
    left = [row for row, outcome in zip(rows, refused, strict=True) if outcome is None]
    try:
        sent = iter(await send(left) if left else ())
    except ProviderTransientError as error:
        if len(left) == len(rows):
            raise
        sent = repeat(retry_of(error))
    return [outcome or next(sent) for outcome in refused]


async def bisected(
    rows: Sequence[Conversion],
    send: Sent,
    most: int = MOST_CALLS,
    in_time: Callable[[], bool] = lambda: True,
) -> list[Outcome]:
    """One outcome per row, in their order. Raises as `answers.settled`.

    Trouble on the line ends it: the parts that are left meet the same trouble, unsent. So does the call's deadline.
    """
    found: dict[int, Outcome | ProviderTransientError] = {}
    parts = [range(len(rows))] if rows else []  # the next one last
    calls = 0
    while parts:
        part = parts.pop()
        if calls == most or (calls and not in_time()):
            why = _unsettled(most) if calls == most else NOT_SENT
            found |= {at: why for left in (part, *parts) for at in left}
            break
        calls += 1
        try:
            said = await send([rows[at] for at in part])
        except ProviderTransientError as error:
            found |= dict.fromkeys(part, error)
            found |= {at: retry_of(error, sent=False) for left in parts for at in left}
            break
        if isinstance(said, list):
            found |= dict(zip(part, said, strict=True))
        elif len(part) == 1:
            found[part[0]] = said
        else:
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
    return settled([found[at] for at in range(len(rows))])


def _unsettled(calls: int) -> Outcome:
    return Outcome.retry(
        "BATCH_REFUSED",
        f"The provider refuses the batch, and {calls} requests did not show for which rows. The rest comes later.",
        Category.VALIDATION,
        counts=False,
    )
