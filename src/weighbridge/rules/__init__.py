"""Second half of the parse step: text columns → typed columns, ids and rejections.

    run_checks              runs the modules below in this order; the only entry point
    headers                 header cells → fields; header_currency: the currency in a header
    check_plan              the pipeline as SQL over the columns of one file; record_currency: the currency of amounts
    check_tables            the tables of a check, and plans kept from earlier files; duckdb_connection
    record_source           the records as views of DuckDB
    time_zones              the time zone that a file names above its header
    decimal_and_date_order  decimal mark, and order of day and month, decided once for the file
    classify_records        each record: typed fields, and one of record_kinds: accepted, blank, totals, header, …
    totals_rows             rows of totals; called by classify_records
    clock_changes           rejects times that do not exist, or exist twice, in their time zone
    subtotals               records that add up other records of their day
    assumption_warnings     warnings about assumed values; two_digit_years, dropped_currencies
    dimensions              ids and last known values of campaigns, ad sets, …
    accepted_rows           the rows of the grain, one per accepted record, in the order of its key
    id_checks               ids that were rounded or made of names
    repeats                 records with the same key: sum_breakdowns, totals_in_breakdowns
    inconsistent_entities   several values for one id
    rejection_messages      code and message of each rejected record; field_errors: the errors that a field can have
    rejects_links           links of a fixed rejects file to the original uploads
    results_column          conversions that were read from a column of results
    nested_values           objects and lists in JSON
    column_report           the use of each column, and the missing fields
    check_result            the result: counts, staged rows, rejections

Called by uploads.parse: unknown_header (refuses a file without a known column), row_digests (digests of staged rows, by
which unchanged rows are recognised).

Rules for values: normalise and validate (ready-made), number_sql, date_sql, currencies (their SQL), apply_rules
(outside of a file). Authors of pipelines need only `n` and `v`: the ready-made normalisers and validators.
"""

from __future__ import annotations

from weighbridge.rules import normalise as n
from weighbridge.rules import validate as v

__all__ = ["n", "v"]
