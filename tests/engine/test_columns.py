"""From a file into tables of users, and back out: every value is the same, or its row was rejected."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.engine.conftest import Put, Run
from weighbridge import Computed, ConfigError, Entity, Field, Pipeline, Ref
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.postgres import pipeline_tables

OWN = "upload_id uuid, line int, created_at timestamptz, updated_at timestamptz"


def things(*fields: Field, key: str = "no") -> Pipeline:
    entity = Entity("things", [key], [Field("no", int, header=["No"]), *fields])
    return Pipeline("things", [entity], min_valid=0)


def table(columns: str, key: str = "no") -> str:
    return (
        f"DROP TABLE IF EXISTS things; CREATE TABLE things (workspace_id uuid, {columns}, {OWN},"
        f" UNIQUE NULLS NOT DISTINCT (workspace_id, {key}))"
    )


async def install(ctx: Context, pipeline: Pipeline) -> None:
    object.__setattr__(ctx, "pipelines", {pipeline.name: pipeline})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, [pipeline])


EVERY = things(
    Field("day", date, header=["Day"]),
    Field("at", datetime, header=["At"]),
    Field("amount", Decimal, header=["Amount"]),
    Field("count", int, header=["Count"]),
    Field("open", bool, header=["Open"]),
    Field("name", header=["Name"]),
)
ROWS: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("1", "31-Jan-25", "2025-01-31 14:30:05.123456+01:00", "1234.567891", "9223372036854775807", "yes", "ä" * 20): (
        date(2025, 1, 31),
        datetime(2025, 1, 31, 13, 30, 5, 123456, UTC),
        Decimal("1234.567891"),
        2**63 - 1,
        True,
        "ä" * 20,
    ),
    ("2", "0001-01-01", "0001-01-01T00:00:00Z", "-999999999999.999999", "-9223372036854775808", "f", "'"): (
        date(1, 1, 1),
        datetime(1, 1, 1, tzinfo=UTC),
        Decimal("-999999999999.999999"),
        -(2**63),
        False,
        "'",
    ),
    ("3", "9999-12-31", "9999-12-31T23:59:59.999999Z", ".000001", "0", "0", "x"): (
        date(9999, 12, 31),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        Decimal("0.000001"),
        0,
        False,
        "x",
    ),
    ("4", "", "", "", "", "", ""): (None,) * 6,
    ("5", "01/05/24", "", "", "", "on", ""): (date(2024, 5, 1), None, None, None, True, None),
}  # fmt: skip
HEADER = "No,Day,At,Amount,Count,Open,Name"


@pytest.mark.parametrize("mine", [False, True], ids=["a table of ours", "a table of the user's"])
async def test_every_type_is_stored_in_postgres_as_in_the_file(
    ctx: Context, put: Put, run: Run, query: Any, mine: bool
) -> None:
    if mine:
        columns = "no bigint, day date, at timestamptz, amount numeric(18,6), count bigint, open boolean"
        query(table(f"{columns}, name varchar(20)"))
    await install(ctx, EVERY)
    bad = [
        "6,01/05/24,,0.00000049,,,",
        "7,,infinity,,,,",
        "8,,,,9223372036854775808,,",
        "9,,,,,maybe,",
        "10,,2025-01-31 14:30:05.1234567Z,,,,",
        *([f"11,,,,,,{'ä' * 21}"] if mine else []),
    ]
    text = "\n".join([HEADER, *(",".join(cells) for cells in ROWS), *bad, "12,31/05/24,,,,,"])
    upload = await run(await put(text.encode(), pipeline="things", platform=None))
    assert upload.bins.rejected == len(bad)
    # As microseconds: psycopg cannot make a Python time of the last one in another zone.
    rows = query(
        "SELECT no, day, (extract(epoch FROM at) * 1000000)::bigint, amount, count, open, name FROM things"
        " WHERE no < 12 ORDER BY no"
    )
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = [
        (int(cells[0]), day, at and (at - epoch) // timedelta(microseconds=1), amount, count, open_, name)
        for cells, (day, at, amount, count, open_, name) in ROWS.items()
    ]
    assert rows == expected
    warned = query("SELECT code, count(*) FROM upload_warnings GROUP BY code ORDER BY code")
    assert warned == [("two_digit_years", 1)]
    codes = query("SELECT code FROM upload_rejections WHERE row_index >= 0 ORDER BY row_index")
    assert [code for (code,) in codes] == [
        "too_many_digits",
        "bad_timestamp",
        "too_many_digits",
        "bad_boolean",
        "too_many_digits",
        *(["too_long"] if mine else []),
    ]


@pytest.mark.parametrize(
    ("field", "column", "kept", "rejected"),
    [
        (Decimal, "bigint", {"2": 2, "-7.00": -7}, {"2.5": "too_many_digits"}),
        (Decimal, "integer", {"2147483647": 2147483647}, {"2147483648": "out_of_range", "0.5": "too_many_digits"}),
        (Decimal, "numeric(10,2)", {"1.50": Decimal("1.50")}, {"1.505": "too_many_digits", "1e8": "bad_number"}),
        (Decimal, "numeric(4,2)", {"99.99": Decimal("99.99")}, {"100": "too_many_digits"}),
        (Decimal, "numeric", {"1.234567": Decimal("1.234567")}, {}),
        (Decimal, "double precision", {"0.1": 0.1}, {"123456789012.123456": "too_many_digits"}),
        (int, "smallint", {"-32768": -32768}, {"32768": "out_of_range"}),
        (int, "numeric(5,2)", {"999": Decimal("999.00")}, {"1000": "too_many_digits"}),
        (int, "double precision", {"9007199254740992": 2.0**53}, {"9007199254740993": "out_of_range"}),
        (int, "text", {"1,234": "1234"}, {}),
        (str, "varchar(3)", {"äöü": "äöü"}, {"äöüß": "too_long"}),
        (str, "char(3)", {"ab": "ab "}, {"abcd": "too_long"}),
        (str, "text", {"x" * 5000: "x" * 5000}, {}),
        (date, "timestamp", {"2025-01-31": datetime(2025, 1, 31)}, {"2025-01-31 10:00": "bad_date"}),  # noqa: DTZ001
        (datetime, "timestamptz(3)", {"2025-01-31T10:00:00.125Z": datetime(2025, 1, 31, 10, 0, 0, 125000, UTC)},
         {"2025-01-31T10:00:00.1255Z": "too_many_digits"}),
        (bool, "boolean", {"on": True, "N": False}, {"2": "bad_boolean"}),
    ],
)  # fmt: skip
async def test_a_narrower_column_keeps_what_fits_and_rejects_the_rest(
    ctx: Context,
    put: Put,
    run: Run,
    query: Any,
    field: type,
    column: str,
    kept: dict[str, Any],
    rejected: dict[str, str],
) -> None:
    query(table(f"no bigint, value {column}"))
    await install(ctx, things(Field("value", field, header=["Value"])))
    lines = [f'{i};"{cell}"' for i, cell in enumerate([*kept, *rejected])]
    upload = await run(await put("\n".join(["No;Value", *lines]).encode(), pipeline="things", platform=None))
    assert upload.bins.accepted == len(kept)
    assert query("SELECT value FROM things ORDER BY no") == [(value,) for value in kept.values()]
    codes = query("SELECT code FROM upload_rejections ORDER BY row_index")
    assert [code for (code,) in codes] == list(rejected.values())


async def test_a_key_is_checked_like_any_value(ctx: Context, put: Put, run: Run, query: Any) -> None:
    query(table("no bigint, sku varchar(2)", key="sku"))
    await install(ctx, things(Field("sku", header=["Sku"]), key="sku"))
    upload = await run(await put(b"No,Sku\n1,ab\n2,abc\n", pipeline="things", platform=None))
    assert (upload.bins.accepted, upload.bins.rejected) == (1, 1)
    assert query("SELECT sku FROM things") == [("ab",)]


@pytest.mark.parametrize(
    ("field", "column"),
    [
        (str, "integer"), (str, "uuid"), (str, "name"), (str, "jsonb"), (str, "text[]"),
        (int, "real"), (int, "boolean"), (int, "varchar(5)"), (int, "date"),
        (Decimal, "real"), (Decimal, "money"), (Decimal, "numeric(5,-2)"),
        (date, "timestamptz"), (date, "text"), (date, "time"),
        (datetime, "timestamp"), (datetime, "date"), (datetime, "text"),
        (bool, "integer"), (bool, '"char"'),
    ],
)  # fmt: skip
async def test_a_column_that_cannot_hold_the_values_is_refused(
    ctx: Context, query: Any, field: type, column: str
) -> None:
    query(table(f"no bigint, value {column}"))
    with pytest.raises(
        ConfigError, match=rf"column things\.value is .* field of type {field.__name__}"
    ) as refused:
        await install(ctx, things(Field("value", field, header=["Value"])))
    assert "ALTER TABLE things ALTER COLUMN value TYPE" in str(refused.value)


async def test_a_column_changed_after_a_migration_is_detected_by_the_next_migration_and_the_next_file(
    ctx: Context, put: Put, run: Run, query: Any
) -> None:
    pipeline = things(Field("value", Decimal, header=["Value"]))
    await install(ctx, pipeline)
    query("ALTER TABLE things ALTER COLUMN value TYPE real")
    with pytest.raises(ConfigError, match=r"things\.value is real"):
        await install(ctx, pipeline)
    upload = await run(await put(b"No,Value\n1,2.5\n", pipeline="things", platform=None))
    assert (upload.status, upload.error_code) == (Status.FAILED, "unfit_column")


async def test_a_domain_is_treated_as_its_base_type(ctx: Context, put: Put, run: Run, query: Any) -> None:
    query("CREATE DOMAIN code AS varchar(2)")
    query(table("no bigint, value code"))
    await install(ctx, things(Field("value", header=["Value"])))
    upload = await run(await put(b"No,Value\n1,ab\n2,abc\n", pipeline="things", platform=None))
    assert (upload.bins.accepted, upload.bins.rejected) == (1, 1)


async def test_a_computed_value_and_an_id_need_a_column_that_can_store_every_value(
    ctx: Context, query: Any
) -> None:
    parent = Entity(
        "owners", ["k"], [Field("k", header=["K"]), Field("half", Decimal, otherwise=Computed("1.0 / 3"))]
    )
    child = Entity("things", ["no"], [Field("no", int, header=["No"])], refs=[Ref("owner_id", "owner")])
    query(
        f"CREATE TABLE owners (workspace_id uuid, id uuid, k text, half bigint, {OWN},"
        " UNIQUE NULLS NOT DISTINCT (workspace_id, k))"
    )
    with pytest.raises(ConfigError, match=r"owners\.half is bigint"):
        await install(ctx, Pipeline("things", [parent, child]))
    query("ALTER TABLE owners ALTER COLUMN half TYPE numeric")
    query(table("no bigint, owner_id text"))
    with pytest.raises(ConfigError, match=r"things\.owner_id is text"):
        await install(ctx, Pipeline("things", [parent, child]))
