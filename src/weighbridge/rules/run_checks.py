"""Entry point of `rules`: a Sheet → staged rows and rejections. Every record is counted in exactly one bin.

    headers → locale → classify_records → subtotals → dimensions, accepted_rows → repeats → rejection_messages

Blocking: run it in a thread. Memory does not grow with the file: DuckDB spills to `scratch`.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from weighbridge.model.column_limits import ColumnLimits
from weighbridge.model.columns import ColumnReport
from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.progress import Progress
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.sheet import Linked, Sheet, WithLateKeys, WithNumbers
from weighbridge.model.upload import Bins, Scope
from weighbridge.rules import (
    accepted_rows,
    assumption_warnings,
    clock_changes,
    column_report,
    dimensions,
    duckdb_connection,
    id_checks,
    inconsistent_entities,
    nested_values,
    record_currency,
    repeats,
    results_column,
    subtotals,
    time_zones,
)
from weighbridge.rules import decimal_and_date_order as rules_locale
from weighbridge.rules.check_plan import CheckPlan, Column, Locale
from weighbridge.rules.check_result import CheckResult
from weighbridge.rules.check_tables import KeptPlans, Tables
from weighbridge.rules.classify_records import classified, classify_names
from weighbridge.rules.headers import match, missing_expected, refuse_without_measures
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
)
from weighbridge.rules.record_source import RecordSource
from weighbridge.rules.rejection_messages import rejections
from weighbridge.rules.rejects_links import keep_links, read_as
from weighbridge.rules.totals_rows import classify_labelled, classify_leading, classify_nameless

# With a larger share of rejected records, decimal mark and date order are decided again, from the whole file.
DOUBTFUL = 0.1


def check(
    pipeline: Pipeline,
    sheet: Sheet,
    scope: Scope,
    *,
    scratch: Path,
    progress: Progress | None = None,
    memory_limit: str = "200MB",
    threads: int = 2,
    today: date | None = None,
    options: ReadOptions = DETECT_ALL,
    column_limits: Mapping[str, ColumnLimits] | None = None,
    exponents: bool = False,
    indian: bool = False,
) -> CheckResult:
    """Type, validate and number every record. `progress` counts the records read, and can stop the check.

    `exponents`: numbers may have exponents although the file is not JSON. `indian`: digits may be grouped as in
    12,34,567 although the file does not show it.
    `column_limits` are the limits of production columns by field; without them, the limits of the declared types apply.

    Raises FileRefused: `other_platform`, `missing_column`, `several_currencies`, `not_daily`, `ambiguous_numbers`,
    `ambiguous_dates`, `unexpected_breakdown`, `incomplete_breakdown`, `sum_too_large`, `ids_rounded`,
    `unknown_time_zone`, `no_data`, `rows_not_conserved`.
    """
    profile = pipeline.profile(scope.platform) if scope.platform else None
    with _reported(lambda: column_report.report_of_refused(sheet.header, pipeline, profile)):
        layout = match(sheet.header, pipeline, profile)
        record_currency.refuse_several(pipeline, layout)
    csv = sheet.kind == "csv"
    plan = CheckPlan(
        pipeline, profile, layout, csv, today, options, column_limits or {}, exponents or not csv, indian
    )
    with _reported(lambda: column_report.report(plan)):
        _refuse_shifted(plan, sheet)
        refuse_without_measures(layout, pipeline, profile)
        source = RecordSource(plan, sheet, scratch, progress or Progress())
        db = (
            KeptPlans((pipeline.name, scope.platform, sheet.kind, tuple(sheet.header)), scope.values())
            if source.small
            else Tables(duckdb_connection.own(scratch, memory_limit, threads), scope.values())
        )
        try:
            with time_zones.applied(db, pipeline, sheet.preamble):
                return _Check(db, plan, source, sheet).run(scope)
        except BaseException as error:
            db.discard()
            # DuckDB wraps exceptions that are raised while it reads our batches.
            raise source.failure or error from None


@contextmanager
def _reported(report: Callable[[], ColumnReport]) -> Iterator[None]:
    """Add the column report to a refusal."""
    try:
        yield
    except FileRefused as refusal:
        if refusal.code != "several_currencies":
            refusal.column_report = report()
        raise


def _refuse_shifted(plan: CheckPlan, sheet: Sheet) -> None:
    """Empty cells beyond the header are accepted only if no expected field is missing."""
    lost = missing_expected(plan.layout, plan.pipeline, plan.profile)
    if sheet.extra_cells and lost:
        raise FileRefused(
            "header_too_short",
            f"The header has {len(sheet.header)} cells, nearly every record has {sheet.extra_cells} more, and no "
            f"column was found for {', '.join(lost)}. A delimiter or a name is missing in the header: add it.",
        )


class _Check:
    """The steps of one check. Each creates tables for the next: typed, tuples, links, grain, rejections."""

    def __init__(self, db: Any, plan: CheckPlan, source: RecordSource, sheet: Sheet) -> None:
        self.db, self.plan, self.source, self.sheet = db, plan, source, sheet

    def run(self, scope: Scope) -> CheckResult:
        locale = self.type_records()
        combos = self.source.combos(self.db)
        clocks = self.reject_by_clock(locale)
        subtotals.count_subtotals(self.db, self.plan, combos, confirmed=isinstance(self.sheet, Linked))
        assumptions = self.assumptions(locale)
        self.make_rows(locale, scope)
        of_ids = id_checks.from_names(self.plan) | id_checks.check(self.db, self.plan, combos)
        repeated = repeats.classify_repeats(self.db, self.plan, locale, scope, self.source)
        if repeated.found:
            self.make_rows(locale, scope)
        of_ids |= inconsistent_entities.warnings(self.db, self.plan, combos)
        bins = self.count_bins()
        if bins.rejected:
            records = self.source.records(self.db)
            sql = rejections(self.plan, locale, records, repeats_rejected=repeated.rejected, clocks=clocks)
            self.db.make("rejections", sql)
        linked = keep_links(self.db, self.sheet, with_totals=repeated.totals)
        self.db.drop("typed")
        return CheckResult(
            db=self.db,
            plan=self.plan,
            scope=scope,
            bins=bins,
            counts=self.counts(bins),
            affected_dates=self.affected_dates(),
            warnings={
                **column_report.warnings(self.plan, self.source.empty_columns),
                **self.sheet.warnings,
                **assumptions,
                **of_ids,
                **results_column.warnings(self.db, self.plan, self.source),
                **nested_values.warnings(self.plan, self.sheet),
                **repeated.warnings,
            },
            column_report=column_report.report(self.plan, self.late_keys()),
            header_line=self.sheet.header_line or 1,
            linked=linked,
            summed=repeated.summed,
            read_as=replace(read_as(self.plan, locale, self.sheet), linked=linked),
        )

    def type_records(self) -> Locale:
        """Create `typed`, with the decimal mark and date order that the file shows.

        If they stay undecided and no record is rejected, that has no effect: only totals have such values.
        """
        locale = self.decide(whole=False)
        kinds = self.make_typed(locale)
        rejected = kinds.get(REJECTED, 0)
        # The head of a small file is the whole file: a second decision would be the same.
        many = not self.source.small and rejected > DOUBTFUL * sum(kinds.values())
        # In a large file, only the first records may differ from the default of the pipeline.
        doubtful = not self.source.small and locale.against_default
        if doubtful or (rejected and (locale.undecided or many)):
            decided = self.decide(whole=True)
            if decided != locale:
                locale = decided
                kinds = self.make_typed(locale)
        if locale.decimal == "," and (fraction := self.fraction()):
            if self.plan.options.decimal:
                raise FileRefused(
                    "ambiguous_numbers",
                    f"The file has JSON numbers such as {fraction}, whose decimal mark is always the point. "
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
        """The locale that the first records show, or all records if `whole`."""
        locale = rules_locale.decide(self.db, self.plan, self.source, whole=whole)
        return replace(locale, plain_dates=self.source.plain_dates())

    def fraction(self) -> str:
        """A number with a decimal point, in a format that has a type for numbers; otherwise empty."""
        return self.sheet.fraction if isinstance(self.sheet, WithNumbers) else ""

    def late_keys(self) -> Iterable[str]:
        return self.sheet.late if isinstance(self.sheet, WithLateKeys) else ()

    def reject_by_clock(self, locale: Locale) -> list[Column]:
        """Reject times that do not exist, or exist twice, in their time zone. Returns the columns that have any."""
        zone = time_zones.named_above(self.plan.pipeline, self.sheet.preamble)
        columns = assumption_warnings.by_clock(self.db, self.plan, zone=zone)
        return [each for each in columns if clock_changes.reject(self.db, self.plan, locale, each)]

    def assumptions(self, locale: Locale) -> dict[str, str]:
        """Warnings about values that depend on an assumption."""
        zone = time_zones.named_above(self.plan.pipeline, self.sheet.preamble)
        return assumption_warnings.warnings(self.db, self.plan, locale, self.source, zone=zone)

    def make_typed(self, locale: Locale) -> dict[int, int]:
        """Create `typed`. Returns the number of records of each kind."""
        sql = classified(self.plan, locale, self.source.coded(self.db))
        self.db.make("typed", sql)
        if self.plan.pipeline.leading_totals:
            classify_leading(self.db)
        kinds = self.kinds()
        if kinds.get(NAMES):
            classify_names(self.db)
        if kinds.get(MISFIT):
            self.db.execute(f"UPDATE typed SET kind = {REJECTED} WHERE kind = {MISFIT}")
        if kinds.get(LABELLED) or kinds.get(BAD_LABEL):
            classify_labelled(self.db, self.plan, confirmed=isinstance(self.sheet, Linked))
        if kinds.get(NAMELESS) or kinds.get(BAD_NAMELESS):
            classify_nameless(self.db, self.plan)
        reclassified = {NAMES, MISFIT, LABELLED, BAD_LABEL, NAMELESS, BAD_NAMELESS}
        return self.kinds() if kinds.keys() & reclassified else kinds

    def kinds(self) -> dict[int, int]:
        return dict(self.db.execute("SELECT kind, count(*) FROM typed GROUP BY kind").fetchall())

    def not_daily(self) -> FileRefused:
        daily = self.plan.profile.daily if self.plan.profile else None
        assert daily is not None
        assert self.plan.layout.period_end is not None
        start, end = (
            self.plan.layout.mapping[daily.field],
            self.plan.layout.header[self.plan.layout.period_end],
        )
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
            f"Line {line} is another header, with other columns than the header on line {self.sheet.header_line}: the "
            "file has several tables. Split it and load each table separately. If the line is a record, correct its "
            "values.",
        )

    def make_rows(self, locale: Locale, scope: Scope) -> None:
        dimensions.build(self.db, self.plan, locale, scope)
        accepted_rows.build(self.db, self.plan)

    def count_bins(self) -> Bins:
        """The bins. Raises FileRefused `rows_not_conserved` if they do not add up to the file."""
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
        column = accepted_rows.grain_column(self.plan, affected) if affected else None
        if column is None:
            return []
        rows = self.db.execute(f"SELECT DISTINCT {column} FROM grain WHERE {column} IS NOT NULL ORDER BY 1")
        return [day for (day,) in rows.fetchall()]
