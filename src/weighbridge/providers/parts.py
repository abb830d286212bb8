"""A batch that is refused as a whole for one bad row, sent again in halves until the bad row stands alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from weighbridge.model.delivery import Category, Conversion, Outcome, ProviderTransientError
from weighbridge.providers.answers import settled

# What came of a part: an outcome per row, or the one that refuses it as a whole.
Sent = Callable[[Sequence[Conversion]], Awaitable[list[Outcome] | Outcome]]
MOST_CALLS = 64  # enough for three bad rows among a thousand; more of them wait for the next call


async def bisected(rows: Sequence[Conversion], send: Sent, most: int = MOST_CALLS) -> list[Outcome]:
    """One outcome per row, in their order. Raises as `answers.settled`.

    Trouble on the line ends it: the parts that are left meet the same trouble, unsent.
    """
    found: dict[int, Outcome | ProviderTransientError] = {}
    parts = [range(len(rows))]  # the next one last
    calls = 0
    while parts:
        part = parts.pop()
        if calls == most:
            found |= {at: _unsettled(most) for left in (part, *parts) for at in left}
            break
        calls += 1
        try:
            said = await send([rows[at] for at in part])
        except ProviderTransientError as error:
            found |= {at: error for left in (part, *parts) for at in left}
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
    )
