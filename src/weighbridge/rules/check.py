"""The second half of the parse step: a Sheet → staged rows and rejections, every record accounted for.

    headers → evidence → typed → subtotals → dimensions, facts → repeats → rejected

Blocking: run it in a thread. Memory stays flat whatever the size of the file: DuckDB spills to `scratch`.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from weighbridge.model.capacity import Capacity
from weighbridge.model.columns import ColumnReport
from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.reading import DETECT_ALL, ReadOptions
from weighbridge.model.sheet import Linked, Sheet, WithLateKeys, WithNumbers
from weighbridge.model.upload import Bins, Scope
from weighbridge.rules import (
    assumed,
    clock_changes,
    columns,
    database,
    dimensions,
    facts,
    ids,
    nested,
    record_currency,
    repeats,
    results,
    several_values,
    subtotals,
    zones,
)
from weighbridge.rules import locale as rules_locale
from weighbridge.rules.checked import Checked
from weighbridge.rules.fixes import keep_links, read_as
from weighbridge.rules.headers import match, missing, refuse_without_measures
from weighbridge.rules.plan import Column, Locale, Plan
from weighbridge.rules.record_kinds import (
    ACCEPTED,
    BAD_LABEL,
    BAD_NAMELESS,
    BLANK,
    DUPLICATE,
    HEADER,
    LABELLED,
    MISFIT,
    NAMELESS,
    NAMES,
    NOT_DAILY,
    OTHER_TABLE,
    REJECTED,
    TOTALS,
    settle_labelled,
    settle_leading,
    settle_nameless,
    settle_names,
    typed,
)
from weighbridge.rules.rejected import rejections
from weighbridge.rules.sheets import Source

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
    exponents: bool = False,
    indian: bool = False,
) -> Checked:
    """Type, validate and number every record. `on_rows` hears how many were read, and may raise to stop.

    `exponents`: numbers may have them although the file is no JSON. `indian`: digits may be grouped as in 12,34,567
    although the file does not show it.
    `capacities` are the limits of production columns by field; without them those of the declared types hold.

    Raises FileRefused: `other_platform`, `missing_column`, `several_currencies`, `not_daily`, `ambiguous_numbers`,
    `ambiguous_dates`, `unexpected_breakdown`, `incomplete_breakdown`, `sum_too_large`, `ids_rounded`,
    `unknown_time_zone`, `no_data`, `rows_not_conserved`.
    """
    profile = pipeline.profile(scope.platform) if scope.platform else None
    with _reported(lambda: columns.report_of_refused(sheet.header, pipeline, profile)):
        layout = match(sheet.header, pipeline, profile)
        record_currency.refuse_several(pipeline, layout)
    csv = sheet.kind == "csv"
    plan = Plan(
        pipeline, profile, layout, csv, today, options, capacities or {}, exponents or not csv, indian
    )
    with _reported(lambda: columns.report(plan)):
        _refuse_shifted(plan, sheet)
        refuse_without_measures(layout, pipeline, profile)
        source = Source(plan, sheet, scratch, on_rows)
        db = database.shared() if source.small else database.own(scratch, memory_limit, threads)
        try:
            with zones.applied(db, pipeline, sheet.preamble):
                return _Check(db, plan, source, sheet).run(scope)
        except BaseException as error:
            db.close()
            # DuckDB wraps what goes wrong while it reads from us.
            raise source.failure or error from None


@contextmanager
def _reported(report: Callable[[], ColumnReport]) -> Iterator[None]:
    """A refusal goes on with the columns of the file."""
    try:
        yield
    except FileRefused as refusal:
        if refusal.code != "several_currencies":
            refusal.report = report()
        raise


def _refuse_shifted(plan: Plan, sheet: Sheet) -> None:
    """Empty cells beyond the header are harmless only where no name is missing in the header."""
    lost = missing(plan.layout, plan.pipeline, plan.profile)
    if sheet.extra_cells and lost:
        raise FileRefused(
            "header_too_short",
            f"The header has {len(sheet.header)} cells, nearly every record has {sheet.extra_cells} more, and no "
            f"column was found for {', '.join(lost)}. A separator or a name is missing in the header: add it.",
        )


class _Check:
    """The steps of one check. Each makes tables for the next: typed, tuples, links, grain, rejections."""

    def __init__(self, db: Any, plan: Plan, source: Source, sheet: Sheet) -> None:
        self.db, self.plan, self.source, self.sheet = db, plan, source, sheet

    def run(self, scope: Scope) -> Checked:
        locale = self.type_records()
        combos = self.source.combos(self.db)
        clocks = self.reject_by_clock(locale)
        subtotals.settle(self.db, self.plan, combos, confirmed=isinstance(self.sheet, Linked))
        assumptions = self.assumptions(locale)
        self.make_rows(locale, scope)
        of_ids = ids.from_names(self.plan) | ids.check(self.db, self.plan, combos)
        repeated = repeats.settle(self.db, self.plan, locale, scope, lambda: self.source.records(self.db))
        if repeated.found:
            self.make_rows(locale, scope)
        of_ids |= several_values.warnings(self.db, self.plan, combos)
        bins = self.weigh()
        if bins.rejected:
            records = self.source.records(self.db)
            sql = rejections(self.plan, locale, records, judged=repeated.judged, clocks=clocks)
            self.db.execute(f"CREATE TEMP TABLE rejections AS {sql}")
        linked = keep_links(self.db, self.sheet, with_totals=repeated.totals)
        self.db.execute("DROP TABLE typed")
        return Checked(
            db=self.db,
            plan=self.plan,
            scope=scope,
            bins=bins,
            counts=self.counts(bins),
            affected_dates=self.affected_dates(),
            warnings={
                **columns.warnings(self.plan, self.source.empty_columns),
                **self.sheet.warnings,
                **assumptions,
                **of_ids,
                **results.warnings(self.db, self.plan, lambda: self.source.head(self.db)),
                **nested.warnings(self.plan, self.sheet),
                **repeated.warnings,
            },
            report=columns.report(self.plan, self.late_keys()),
            header_line=self.sheet.header_line or 1,
            linked=linked,
            summed=repeated.summed,
            read_as=replace(read_as(self.plan, locale, self.sheet), linked=linked),
        )

    def type_records(self) -> Locale:
        """Make `typed`, under the decimal mark and order of dates that the file itself shows.

        What stays open is in question only where a record was rejected: in a line of totals it does no harm.
        """
        locale = self.decide(whole=False)
        kinds = self.make_typed(locale)
        rejected = kinds.get(REJECTED, 0)
        # The head of a small file is all of it: that has said what it can.
        many = not self.source.small and rejected > DOUBTFUL * sum(kinds.values())
        # The first records of a large file may be the only ones that are not written as usual.
        unusual = not self.source.small and locale.unusual
        if unusual or (rejected and (locale.open or many)):
            decided = self.decide(whole=True)
            if decided != locale:
                locale = decided
                kinds = self.make_typed(locale)
        if locale.decimal == "," and (fraction := self.fraction()):
            if self.plan.options.decimal:
                raise FileRefused(
                    "ambiguous_numbers",
                    f"The file has numbers such as {fraction}, whose decimal mark in JSON is the point. "
                    "Leave --decimal out, or write these numbers as text.",
                )
            locale = replace(locale, decimal=".", zeros=False)
            kinds = self.make_typed(locale)
        if kinds.get(NOT_DAILY):
            raise self.not_daily()
        if kinds.get(OTHER_TABLE):
            raise self.several_tables()
        return locale

    def decide(self, *, whole: bool) -> Locale:
        """What the first records show, or all of them."""
        source = self.source.records if whole else self.source.head
        locale = rules_locale.decide(self.db, self.plan, lambda: source(self.db), whole=whole)
        return replace(locale, plain_dates=self.source.plain_dates())

    def fraction(self) -> str:
        """A number with a decimal point, in a format that has numbers of its own."""
        return self.sheet.fraction if isinstance(self.sheet, WithNumbers) else ""

    def late_keys(self) -> Iterable[str]:
        return self.sheet.late if isinstance(self.sheet, WithLateKeys) else ()

    def reject_by_clock(self, locale: Locale) -> list[Column]:
        """Reject times that clocks skip or come to twice. The columns that have any."""
        zone = zones.named_above(self.plan.pipeline, self.sheet.preamble)
        asked = assumed.by_clock(self.db, self.plan, zone=zone)
        return [each for each in asked if clock_changes.reject(self.db, self.plan, locale, each)]

    def assumptions(self, locale: Locale) -> dict[str, str]:
        """Warnings about values that rest on an assumption."""
        zone = zones.named_above(self.plan.pipeline, self.sheet.preamble)
        return assumed.warnings(self.db, self.plan, locale, lambda: self.source.records(self.db), zone=zone)

    def make_typed(self, locale: Locale) -> dict[int, int]:
        """How many records there are of each kind."""
        sql = typed(self.plan, locale, self.source.coded(self.db))
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE typed AS {sql}")
        if self.plan.pipeline.leading_totals:
            settle_leading(self.db)
        kinds = self.kinds()
        if kinds.get(NAMES):
            settle_names(self.db)
        if kinds.get(MISFIT):
            self.db.execute(f"UPDATE typed SET kind = {REJECTED} WHERE kind = {MISFIT}")
        if kinds.get(LABELLED) or kinds.get(BAD_LABEL):
            settle_labelled(self.db, self.plan, confirmed=isinstance(self.sheet, Linked))
        if kinds.get(NAMELESS) or kinds.get(BAD_NAMELESS):
            settle_nameless(self.db, self.plan)
        unsettled = {NAMES, MISFIT, LABELLED, BAD_LABEL, NAMELESS, BAD_NAMELESS}
        return self.kinds() if kinds.keys() & unsettled else kinds

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

    def several_tables(self) -> FileRefused:
        [(line,)] = self.db.execute(f"SELECT min(line) FROM typed WHERE kind = {OTHER_TABLE}").fetchall()
        return FileRefused(
            "several_tables",
            f"Line {line} is another header, with other columns than the one on line {self.sheet.header_line}: the "
            "file holds several tables. Split it and load each table separately. If the line is a record, correct its "
            "values.",
        )

    def make_rows(self, locale: Locale, scope: Scope) -> None:
        dimensions.build(self.db, self.plan, locale, scope)
        facts.build(self.db, self.plan)

    def weigh(self) -> Bins:
        """Every record is in one bin, and the bins are the file."""
        kinds = self.kinds()
        bins = Bins(
            preamble=len(self.sheet.preamble),
            header=(1 if self.sheet.header_line else 0) + kinds.get(HEADER, 0),
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
