"""Called by repeats.py, fifth check: finds the totals among the parts of a breakdown.

A part with `Total`, `All devices` or an empty cell in a distinguishing column covers all parts that are equal in the
other columns. It is totals if its figures are their sums. Parts that are added up must not overlap. If they overlap, or
if the figures of a label are not the sums, all records of the key are rejected.

A label may be in an unknown language. A value is a label if its figures are always the sums of the other parts, and if
the sums have so many digits that this is not by chance; with fewer digits, the key is unclear.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa

from weighbridge.model.counts import counted
from weighbridge.rules import accepted_rows
from weighbridge.rules.check_plan import CheckPlan, literal
from weighbridge.rules.record_kinds import TOTALS
from weighbridge.rules.totals_rows import is_label

NAMED, BLANK, LABEL = range(
    3
)  # the state of a part in one column; a state covers itself and the states before it
SURE = 6  # digits of sums; by chance they are equal in one file in a million
EVERYTHING = r"(?:all|alle|tous|toutes|tutti|tutte|todos|todas|wszystkie|overall)(?: [\p{L}()]+){0,3}"
OTHERS = r"\b(?:other|ander|übrig|autre|altr|otr|outr|pozosta)"  # `All other devices` is a part
FETCHED = 10_000

Pattern = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    row_index: int
    line: int
    cells: tuple[str, ...]
    states: Pattern
    figures: tuple[int | Decimal | None, ...]


@dataclass
class KeyResult:
    """The result for one key."""

    totals: list[BreakdownRow] = field(default_factory=list)
    unclear: list[BreakdownRow] = field(default_factory=list)
    # Unnamed, and equal to the only part that they cover: totals if `unnamed` is true for any key of the file.
    doubtful: list[BreakdownRow] = field(default_factory=list)
    unnamed: bool = False  # an unnamed part is the sum of several parts


def count_totals(db: Any, plan: CheckPlan, distinguishing: Iterable[int]) -> dict[str, str]:
    """Count totals as such in `typed`, and mark unclear keys in `contradictions`. Returns the warning.

    Creates `breakdown_totals`.
    """
    positions = list(distinguishing)
    names = [
        name
        for column in plan.grain_columns
        if column.numeric
        and column.field.additive
        and (name := accepted_rows.grain_column(plan, column.field.name))
    ]
    _lay_out(db, plan, positions, names)
    _find_unlisted(db, positions, len(names))
    totals, unclear = _find_all_totals(_keys(db, positions, len(names)))
    _make(db, "breakdown_totals", ("row_index", "line"), totals)
    _make(db, "unclear_keys", ("line", "no"), unclear)
    db.execute("""UPDATE contradictions SET unclear_line = unclear_keys.line FROM unclear_keys
        WHERE contradictions.no = unclear_keys.no""")
    if not totals:
        return {}
    db.execute(f"""UPDATE typed SET kind = {TOTALS} FROM breakdown_totals
        WHERE typed.row_index = breakdown_totals.row_index""")
    was = "was" if len(totals) == 1 else "were"
    return {
        "breakdown_totals": f"{counted(len(totals), 'record')} {was} counted as totals of other records and not added "
        f"up (first on line {min(line for _, line in totals)})."
    }


def _make(db: Any, table: str, columns: tuple[str, str], rows: list[tuple[int, int]]) -> None:
    """Create a table of whole numbers."""
    values = [pa.array([row[i] for row in rows], pa.int64()) for i in range(2)]
    db.register("made_here", pa.table(values, names=columns))
    db.make(table, "SELECT * FROM made_here")
    db.unregister("made_here")


def _lay_out(db: Any, plan: CheckPlan, positions: list[int], names: list[str]) -> None:
    """Create `breakdown_parts`: the cells that distinguish parts, their states, and the figures."""
    states = [f"{_state(f'c{p}', plan)} AS s{p}" for p in positions]
    cells = [f"c{p}" for p in positions]
    figures = [f"{name} AS f{no}" for no, name in enumerate(names)]
    db.make(
        "breakdown_parts",
        f"""SELECT compared.row_index, compared.line, no, {", ".join([*cells, *states, *figures])}
        FROM compared JOIN grain USING (row_index)
        WHERE no IN (SELECT no FROM contradictions WHERE breakdown AND NOT incomplete) AND NOT is_copy""",
    )


def _state(cell: str, plan: CheckPlan) -> str:
    nulls = ", ".join(literal(marker) for marker in ("", *plan.nulls))
    everything = f"regexp_full_match({cell}, {literal(f'(?i){EVERYTHING}')})"
    others = f"regexp_matches({cell}, {literal(f'(?i){OTHERS}')})"
    return f"""CASE WHEN {cell} IN ({nulls}) THEN {BLANK} WHEN length({cell}) >= 40 THEN {NAMED}
        WHEN {is_label(cell)} OR ({everything} AND NOT {others}) THEN {LABEL} ELSE {NAMED} END"""


def _find_unlisted(db: Any, positions: list[int], figures: int) -> None:
    """Mark values as labels if they are always the sum of the other parts; mark keys where this may be by chance.

    A value is that of one column, or of all columns together.
    """
    for chosen in dict.fromkeys([*((p,) for p in positions), tuple(positions)]):
        value = f"concat_ws(chr(31), {', '.join(f'c{p}' for p in chosen)})"
        whole = ", ".join(["no", *(f"c{p}" for p in positions if p not in chosen)])
        fits = [f"coalesce(sum(f{no}) OVER whole - f{no} = f{no}, f{no} IS NULL)" for no in range(figures)]
        digits = [
            f"coalesce(length(trim(replace(CAST(abs(f{no}) AS VARCHAR), '.', ''), '0')), 0)"
            for no in range(figures)
        ]
        named = " AND ".join(f"s{p} = {NAMED}" for p in positions)
        filled = " OR ".join(f"f{no} <> 0" for no in range(figures))
        db.make(
            "sums",
            f"""SELECT row_index, line, no, {value} AS value, count(*) OVER whole AS records,
                {" AND ".join(fits)} AS fits, {" + ".join(digits)} AS digits
            FROM breakdown_parts WHERE {named} AND ({filled}) WINDOW whole AS (PARTITION BY {whole})""",
        )
        always = """SELECT value, sum(digits) FILTER (records > 2) AS digits FROM sums WHERE records > 1
            GROUP BY value HAVING bool_and(fits) AND max(records) > 2"""
        sure = f"SELECT value FROM ({always}) WHERE digits >= {SURE}"
        labels = ", ".join(f"s{p} = {LABEL}" for p in chosen)
        db.execute(f"UPDATE breakdown_parts SET {labels} WHERE {value} IN ({sure})")
        # In a file with totals, most keys have them; a single sum among many keys is chance.
        possible = f"""SELECT no, min(line) AS line FROM sums WHERE records > 2
            AND value IN (SELECT value FROM ({always}) WHERE digits < {SURE}) GROUP BY no"""
        db.execute(f"""UPDATE contradictions SET unclear_line = possible.line FROM ({possible}) AS possible
            WHERE contradictions.no = possible.no AND 2 * (SELECT count(*) FROM ({possible}))
                > (SELECT count(DISTINCT no) FROM sums WHERE records > 2)""")


def _keys(db: Any, positions: list[int], figures: int) -> Iterator[tuple[int, list[BreakdownRow]]]:
    """The parts of each key that has a label or an unnamed part."""
    labelled = " OR ".join(f"s{p} <> {NAMED}" for p in positions)
    names = [f"c{p}" for p in positions] + [f"s{p}" for p in positions] + [f"f{no}" for no in range(figures)]
    columns = ", ".join(["no", "row_index", "line", *names])
    found = db.execute(f"""SELECT {columns} FROM breakdown_parts
        WHERE no IN (SELECT no FROM breakdown_parts WHERE {labelled})
            AND no NOT IN (SELECT no FROM contradictions WHERE unclear_line IS NOT NULL) ORDER BY no, row_index""")
    width = len(positions)

    def rows() -> Iterator[tuple[Any, ...]]:
        while some := found.fetchmany(FETCHED):
            yield from some

    for no, members in groupby(rows(), key=lambda row: row[0]):
        yield (
            no,
            [
                BreakdownRow(
                    row[1], row[2], row[3 : 3 + width], row[3 + width : 3 + 2 * width], row[3 + 2 * width :]
                )
                for row in members
            ],
        )


def _find_all_totals(
    keys: Iterator[tuple[int, list[BreakdownRow]]],
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """row_index and line of the totals; line and number of the unclear keys."""
    totals: list[tuple[int, int]] = []
    unclear: list[tuple[int, int]] = []
    doubtful: list[tuple[int, KeyResult]] = []
    unnamed = False
    for no, parts in keys:
        result = find_totals(parts)
        unnamed = unnamed or result.unnamed
        if result.unclear:
            unclear.append((min(part.line for part in result.unclear), no))
        elif result.doubtful:
            doubtful.append((no, result))
        else:
            totals += [(part.row_index, part.line) for part in result.totals]
    for no, result in doubtful:
        if unnamed:
            totals += [(part.row_index, part.line) for part in result.totals]
        else:
            unclear.append((min(part.line for part in result.doubtful), no))
    return totals, unclear


def find_totals(parts: list[BreakdownRow]) -> KeyResult:
    """The totals among the parts of one key. Parts that cover the fewest others are checked first."""
    columns = [i for i in range(len(parts[0].cells)) if len({part.cells[i] for part in parts}) > 1]
    by_pattern: dict[Pattern, list[BreakdownRow]] = defaultdict(list)
    for part in parts:
        if any(part.figures):  # a part without figures does not matter
            by_pattern[tuple(part.states[i] for i in columns)].append(part)
    found, added, confirmed = KeyResult(), dict[Pattern, list[BreakdownRow]](), set[int]()
    for pattern in sorted(by_pattern, key=sum):
        named = [i for i, state in zip(columns, pattern, strict=True) if state == NAMED]
        covered = _covered(pattern, added, named) if any(pattern) else {}
        kept = []
        for part in by_pattern[pattern]:
            below = covered.get(tuple(part.cells[i] for i in named), [])
            if not below or not _adds_up(part, below):
                kept.append(part)
                found.unclear += [part] if below else []
                continue
            found.totals.append(part)
            if LABEL in pattern:
                confirmed |= {each.row_index for each in below}
            elif len(below) > 1:
                found.unnamed = True
            else:
                found.doubtful.append(part)
        added[pattern] = kept
    found.unclear = [
        part for part in [*found.unclear, *_overlapping(added, columns)] if part.row_index not in confirmed
    ]
    return found


def _covered(
    pattern: Pattern, added: dict[Pattern, list[BreakdownRow]], named: list[int]
) -> dict[tuple[str, ...], list[BreakdownRow]]:
    """The parts that a part with this pattern covers, by the cells that must be equal."""
    found = defaultdict(list)
    for other, parts in added.items():
        if all(mine >= theirs for mine, theirs in zip(pattern, other, strict=True)):
            for part in parts:
                found[tuple(part.cells[i] for i in named)].append(part)
    return found


def _adds_up(part: BreakdownRow, below: list[BreakdownRow]) -> bool:
    """Are all its figures the sums of theirs? Missing figures are ignored."""
    return all(
        figure is None or figure == sum(each.figures[i] or 0 for each in below)
        for i, figure in enumerate(part.figures)
    )


def _overlapping(added: dict[Pattern, list[BreakdownRow]], columns: list[int]) -> Iterator[BreakdownRow]:
    """The parts that are unnamed in a column, and equal to another part in all columns where both have a name."""
    for pattern, parts in added.items():
        for other, others in added.items() if any(pattern) else ():
            both = [i for i, a, b in zip(columns, pattern, other, strict=True) if a == b == NAMED]
            counts = Counter(tuple(part.cells[i] for i in both) for part in others)
            least = 1 if other == pattern else 0
            yield from (part for part in parts if counts[tuple(part.cells[i] for i in both)] > least)
