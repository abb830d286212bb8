"""The second half of the parse step: a Sheet → staged rows and rejections, every record accounted for.

    headers → evidence → typed → dimensions, facts → repeats → rejected

Blocking: run it in a thread. Memory stays flat whatever the size of the file: DuckDB spills to `scratch`.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from weighbridge.model.capacity import Capacity
from weighbridge.model.errors import FileRefused, did_you_mean
from weighbridge.model.pipeline import InHeader, Pipeline
from weighbridge.model.reading import DETECT_ALL, ReadOptions
from weighbridge.model.sheet import Sheet
from weighbridge.model.upload import Bins, Scope
from weighbridge.rules import assumed, database, dimensions, evidence, facts, repeats, zones
from weighbridge.rules.checked import Checked
from weighbridge.rules.headers import fold, listed, match, synonyms
from weighbridge.rules.plan import Locale, Plan
from weighbridge.rules.rejected import rejections
from weighbridge.rules.sheets import Source
from weighbridge.rules.typed import (
    ACCEPTED,
    BLANK,
    DUPLICATE,
    NOT_DAILY,
    REJECTED,
    TOTALS,
    settle_leading,
    typed,
)

# So large a share of rejected records puts the decimal mark and the order of dates in question.
DOUBTFUL = 0.1


def check(
    pipeline: Pipeline,
    sheet: Sheet,
    scope: Scope,
    *,
    scratch: Path,
    on_rows: Callable[[int], None] = lambda read: None,
    memory_limit: str = "200MB",
    threads: int = 2,
    today: date | None = None,
    options: ReadOptions = DETECT_ALL,
    capacities: Mapping[str, Capacity] | None = None,
) -> Checked:
    """Type, validate and number every record. `on_rows` hears how many were read, and may raise to stop.

    `capacities` are the limits of production columns by field; without them those of the declared types hold.

    Raises FileRefused: `other_platform`, `missing_column`, `several_currencies`, `not_daily`, `ambiguous_numbers`,
    `ambiguous_dates`, `unexpected_breakdown`, `unknown_time_zone`, `no_data`, `rows_not_conserved`.
    """
    profile = pipeline.profile(scope.platform) if scope.platform else None
    layout = match(sheet.header, pipeline, profile)
    plan = Plan(pipeline, profile, layout, sheet.kind == "csv", today, options, capacities or {})
    source = Source(plan, sheet, scratch, on_rows)
    db = database.shared() if source.small else database.own(scratch, memory_limit, threads)
    try:
        with zones.applied(db, pipeline, sheet.preamble):
            return _Check(db, plan, source, sheet).run(scope)
    except BaseException as error:
        db.close()
        # DuckDB wraps what goes wrong while it reads from us.
        raise source.failure or error from None


class _Check:
    """The steps of one check. Each makes tables for the next: typed, tuples, links, grain, rejections."""

    def __init__(self, db: Any, plan: Plan, source: Source, sheet: Sheet) -> None:
        self.db, self.plan, self.source, self.sheet = db, plan, source, sheet

    def run(self, scope: Scope) -> Checked:
        locale = self.type_records()
        self.source.combos(self.db)
        assumptions = self.assumptions(locale)
        self.make_rows(locale, scope)
        keys, values = facts.keys(self.plan), facts.values(self.plan)
        repeated = repeats.mark(self.db, keys, values, self.plan.pipeline.grain.upsert.repeats)
        if repeated:
            self.refuse_breakdowns()
            self.make_rows(locale, scope)
        bins = self.weigh()
        if bins.rejected:
            sql = rejections(self.plan, locale, self.source.records(self.db), repeated=repeated)
            self.db.execute(f"CREATE TEMP TABLE rejections AS {sql}")
        self.db.execute("DROP TABLE typed")
        return Checked(
            db=self.db,
            plan=self.plan,
            scope=scope,
            bins=bins,
            counts=self.counts(bins),
            affected_dates=self.affected_dates(),
            warnings=_warnings(self.plan) | assumptions,
            header_line=self.sheet.header_line or 1,
        )

    def type_records(self) -> Locale:
        """Make `typed`, under the decimal mark and order of dates that the file itself shows.

        What stays open is in question only where a record was rejected: in a line of totals it does no harm.
        """
        locale = evidence.decide(self.db, self.plan, lambda: self.source.head(self.db), whole=False)
        self.make_typed(locale)
        kinds = self.kinds()
        rejected = kinds.get(REJECTED, 0)
        # The head of a small file is all of it: that has said what it can.
        many = not self.source.small and rejected > DOUBTFUL * sum(kinds.values())
        if rejected and (locale.open or many):
            decided = evidence.decide(self.db, self.plan, lambda: self.source.records(self.db), whole=True)
            if decided != locale:
                locale = decided
                self.make_typed(locale)
                kinds = self.kinds()
        if kinds.get(NOT_DAILY):
            raise self.not_daily()
        return locale

    def assumptions(self, locale: Locale) -> dict[str, str]:
        """Warnings about values that rest on an assumption."""
        zone = zones.named_above(self.plan.pipeline, self.sheet.preamble)
        return assumed.warnings(self.db, self.plan, locale, lambda: self.source.records(self.db), zone=zone)

    def make_typed(self, locale: Locale) -> None:
        sql = typed(self.plan, locale, self.source.coded(self.db))
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE typed AS {sql}")
        if self.plan.pipeline.leading_totals:
            settle_leading(self.db)

    def kinds(self) -> dict[int, int]:
        return dict(self.db.execute("SELECT kind, count(*) FROM typed GROUP BY kind").fetchall())

    def not_daily(self) -> FileRefused:
        daily = self.plan.profile.daily if self.plan.profile else None
        assert daily is not None
        assert self.plan.layout.ends is not None
        start, end = self.plan.layout.mapping[daily.field], self.plan.layout.header[self.plan.layout.ends]
        lines = self.db.execute(
            f"SELECT line FROM typed WHERE kind = {NOT_DAILY} ORDER BY row_index LIMIT 3"
        ).fetchall()
        return FileRefused(
            "not_daily",
            f"The report is not daily: expected {start!r} and {end!r} to be the same day in every record, "
            f"got different days on line {', '.join(str(line) for (line,) in lines)}. {daily.hint}",
        )

    def make_rows(self, locale: Locale, scope: Scope) -> None:
        dimensions.build(self.db, self.plan, locale, scope)
        facts.build(self.db, self.plan)

    def refuse_breakdowns(self) -> None:
        """Contradicting records in a file that splits its days further: it is the export that is wrong."""
        profile = self.plan.profile
        known = {fold(header) for header in profile.breakdowns} if profile else set()
        found = [cell for cell in self.plan.layout.header if fold(cell) in known]
        if found and self.db.execute("SELECT count(*) FROM judged WHERE conflict").fetchall()[0][0]:
            raise FileRefused(
                "unexpected_breakdown",
                f"Expected one record for each day and {_level(self.plan)}, got several, told apart by "
                f"{', '.join(repr(cell) for cell in found)}. Export again without that breakdown.",
            )

    def weigh(self) -> Bins:
        """Every record is in one bin, and the bins are the file."""
        kinds = self.kinds()
        bins = Bins(
            preamble=len(self.sheet.preamble),
            header=1 if self.sheet.header_line else 0,
            blank=kinds.get(BLANK, 0),
            totals=kinds.get(TOTALS, 0),
            accepted=kinds.get(ACCEPTED, 0),
            duplicate=kinds.get(DUPLICATE, 0),
            rejected=kinds.get(REJECTED, 0),
        )
        staged = self.db.execute("SELECT count(*) FROM grain").fetchall()[0][0]
        if bins.records != self.sheet.records or staged != bins.accepted:
            raise FileRefused(
                "rows_not_conserved",
                f"The file has {self.sheet.records} records, but {bins.records} were accounted for "
                f"({bins.accepted} accepted, {staged} staged). Nothing was loaded; please report this file.",
            )
        if not bins.data_rows:
            raise FileRefused("no_data", "Expected at least one record below the header, got none.")
        return bins

    def counts(self, bins: Bins) -> dict[str, int]:
        counts = {entity.name: 0 for entity in self.plan.pipeline.entities}
        found = dimensions.entities(self.plan)
        if found:
            highest = ", ".join(f"coalesce(max({dimensions.number(entity)}), 0)" for entity in found)
            numbers = self.db.execute(f"SELECT {highest} FROM links").fetchall()[0]
            counts |= {entity.name: number for entity, number in zip(found, numbers, strict=True)}
        return counts | {self.plan.pipeline.grain.name: bins.accepted}

    def affected_dates(self) -> list[date]:
        affected = self.plan.pipeline.affected
        column = facts.stored(self.plan, affected) if affected else None
        if column is None:
            return []
        rows = self.db.execute(f"SELECT DISTINCT {column} FROM grain WHERE {column} IS NOT NULL ORDER BY 1")
        return [day for (day,) in rows.fetchall()]


def _warnings(plan: Plan) -> dict[str, str]:
    """What is no fault, but should be known, by code."""
    found = {}
    for name, declared in plan.pipeline.fields.items():
        other = declared.otherwise
        named = name in plan.layout.mapping or name in plan.layout.constants
        if isinstance(other, InHeader) and other.of in plan.layout.mapping and not named:
            read = f"{plan.layout.mapping[other.of]!r} was read without it"
            found[f"{declared.name}_not_named"] = f"{name}: the file names none; {read}."
        if plan.profile and name in plan.profile.expects and not named:
            code = name.removeprefix(f"{plan.pipeline.grain.name}.").replace(".", "_")
            found[f"{code}_column_not_found"] = _not_found(name, plan)
    return found


def _not_found(name: str, plan: Plan) -> str:
    """A column goes by a name of its own, most likely: which one could it be?"""
    names, unused = synonyms(name, plan.pipeline.fields[name], plan.pipeline, plan.profile), plan.unused
    guess = next((g for g in (did_you_mean(n, unused) for n in names) if g), "")
    empty = f"{guess} It stays empty." if guess else "; it stays empty."
    left = f" No field uses {listed(unused)}." if unused else ""
    return f"{name}: expected a column such as {names[0]!r}, got none{empty}{left}"


def _level(plan: Plan) -> str:
    """What each record is a day of: the innermost entity that the file names."""
    found = dimensions.entities(plan)
    return found[-1].name.replace("_", " ") if found else "key"
