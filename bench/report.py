"""The figures as a table, and what they say about what we want to reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from .setting import AGAIN, CLAIMED, COUNTED, FIRST, GROUPED, LARGE, QUEUED, Result, shown


def print_table(results: Sequence[Result]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for header in ("rows", "seconds", "rows/s", "ours takes", "peak MB"):
        table.add_column(header, justify="right")
    table.add_column("")
    for result in results:
        if result.seconds is None:
            continue
        ours = _find(results, "ours", result.what)
        table.add_row(
            f"{result.contender}, {result.what}",
            f"{result.rows:,}",
            shown(result),
            f"{result.rows / result.seconds:,.0f}",
            f"× {ours.seconds / result.seconds:.2f}" if ours and ours.seconds else "",
            f"{result.peak_mb:,.0f}" if result.peak_mb else "",
            result.note,
        )
    console = Console()
    console.width = max(console.width, 110)
    console.print(table)
    for result in results:
        if result.seconds is None:
            print(f"\n{result.contender} FAILED: {result.note}\n")


def print_goals(results: Sequence[Result]) -> None:
    for goal, value, limit in _goals(results):
        print(f"{goal}: {value:.2f} (at most {limit:g}: {'reached' if value <= limit else 'MISSED'})")


def _goals(results: Sequence[Result]) -> Iterator[tuple[str, float, float]]:
    """Every goal whose figures are there: what it is about, what came out, what it may be at most."""
    grouped = _find(results, "ours", GROUPED)
    if grouped and grouped.seconds:
        yield f"seconds to group {grouped.rows:,} keywords", grouped.seconds, 60
    for what, limit in ((QUEUED, 10), (COUNTED, 5)):
        found = _find(results, "ours", what)
        if found and found.seconds:
            yield f"{what}, milliseconds at the median", 1000 * found.seconds, limit
    for bare in (result for result in results if result.contender == "bare httpx loop"):
        sent = _find(results, "ours", bare.what)
        if sent and sent.seconds and bare.seconds:
            yield f"{bare.what} ÷ bare httpx loop", sent.seconds / bare.seconds, 2
    claims = [r.seconds for r in results if r.what.startswith(CLAIMED) and r.seconds]
    if len(claims) > 1:
        yield "claim before the long backlog ÷ before the short", claims[-1] / claims[0], 1.5
    first, again, large = (_find(results, "ours", what) for what in (FIRST, AGAIN, LARGE))
    if not first or not first.seconds:
        return
    for contender, most in (("psql script", 0.6), ("dlt Arrow merge", 1.2)):
        peer = _find(results, contender, FIRST)
        if peer and peer.seconds:
            yield f"first import ÷ {contender}", first.seconds / peer.seconds, most
    if again and again.seconds:
        yield "same rows again ÷ first import", again.seconds / first.seconds, 0.5
    if large and large.seconds:
        scale = large.rows / first.rows
        yield f"{scale:g} times the rows ÷ first import", large.seconds / first.seconds, 1.1 * scale
    yield (
        "peak memory of any import of ours, MB",
        max(r.peak_mb or 0 for r in results if r.contender == "ours"),
        500,
    )


def _find(results: Sequence[Result], contender: str, what: str) -> Result | None:
    return next((result for result in results if (result.contender, result.what) == (contender, what)), None)
