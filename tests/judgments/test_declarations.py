"""Pipeline options that judgments use: Computed, personal, nulls, decimal, day_first, staged_as, source_file.

The pipeline of these tests is the one that docs/pipelines.md shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rules.checking import Outcome, check_text

import weighbridge
from weighbridge.delivery.context import Context
from weighbridge.model.errors import ConfigError, FileRefused
from weighbridge.model.pipeline import Computed, Entity, Field, Pipeline
from weighbridge.pipelines import judgments
from weighbridge.postgres import pipeline_tables
from weighbridge.rules import n, v

from .conftest import Load, Query

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
HEADER = "Contract,Tenant,E-mail,Rent,Due"


@pytest.fixture(scope="module")
def rents() -> Pipeline:
    """As an author would have it who copied the page."""
    names: dict[str, Any] = {**vars(weighbridge), "date": date, "Decimal": Decimal}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(block, names)
    found = names["rents"]
    assert isinstance(found, Pipeline)
    return found


def check(pipeline: Pipeline, *rows: str) -> Outcome:
    return check_text("\n".join([HEADER, *rows, ""]), None, pipeline=pipeline)


def test_a_made_value_comes_from_other_fields(rents: Pipeline) -> None:
    outcome = check(rents, "C-1,Ann Lee,ANN@example.org,100,31/1/2025", "C-2,Ann Lee,,100,31/1/2025")
    assert [(row["tenant_key"], row["provider"]) for row in outcome.rows["tenant"]] == [
        ("email:ann@example.org", "example.org"),
        ("name:ann lee", None),
    ]


async def test_a_changed_declaration_makes_the_view_of_its_staged_rows_anew(
    ctx: Context, query: Query
) -> None:
    """Its staging table goes, and the view must not hold on to it: every later command would fail."""
    changed = replace(judgments.pipeline, min_valid=0.5, staged_as="elsewhere.rows")
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, [ctx.pipelines["ads"], changed])
    assert query("SELECT count(*) FROM elsewhere.rows") == [(0,)]
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))
    assert query("SELECT count(*) FROM intake.simplicity_validated_rows") == [(0,)]


def test_a_made_value_does_without_columns_that_the_file_lacks(rents: Pipeline) -> None:
    outcome = check_text("Contract,Tenant,Rent\nC-1,Ann Lee,5\n", None, pipeline=rents)
    assert [row["tenant_key"] for row in outcome.rows["tenant"]] == ["name:ann lee"]


def test_cells_are_read_as_the_pipeline_says_where_they_can_be_read_either_way(rents: Pipeline) -> None:
    [row] = check(rents, "C-1,-,n/a,1.234,3/4/2025").rows["rent"]
    assert (row["amount"], row["due_on"], row["tenant_id"]) == (1234, date(2025, 4, 3), None)


def test_what_is_written_the_other_way_is_rejected_for_itself(rents: Pipeline) -> None:
    others = [f"C-{n},,,1.234,3/4/2025" for n in range(1, 12)]
    slips = ["C-20,,,12.34,5/4/2025", "C-21,,,1.000,4/13/2025"]
    outcome = check(rents, *others, 'C-12,,,"1.234,00",13/4/2025', *slips)
    assert [row["amount"] for row in outcome.rows["rent"]] == [1234] * 12
    assert outcome.codes == ["bad_amount", "bad_date"]
    # Without a cell that shows the usual way, the slips may be right.
    with pytest.raises(FileRefused) as refused:
        check(rents, *others, *slips)
    assert refused.value.code == "ambiguous_numbers"


def test_a_file_that_is_clearly_written_the_other_way_is_read_that_way(rents: Pipeline) -> None:
    [row] = check(rents, 'C-1,,,"1,234.56",4/13/2025').rows["rent"]
    assert (row["amount"], row["due_on"]) == (Decimal("1234.56"), date(2025, 4, 13))


def test_numbers_of_json_have_a_point_whatever_the_pipeline_says(rents: Pipeline) -> None:
    outcome = check_text(
        '[{"Contract": "C-1", "Tenant": "A", "Rent": 1.234}]', None, pipeline=rents, kind="json"
    )
    assert [row["amount"] for row in outcome.rows["rent"]] == [Decimal("1.234")]


def test_personal_values_are_not_repeated(rents: Pipeline) -> None:
    strict = Field("name", header=["Tenant"], validate=[v.max_length(3)], personal=True)
    tenant = replace(rents.entity("tenant"), fields=[*rents.entity("tenant").fields[:1], strict])
    keyed = replace(tenant.fields[0], otherwise=Computed("{name}"))
    pipeline = Pipeline("rents", [replace(tenant, fields=[keyed, strict]), rents.grain])
    [rejection] = check(pipeline, "C-1,Ann Lee,,1,2025-01-31").rejections
    assert rejection["message"] == "tenant.name: expected at most 3 characters, got something else (line 2)."


async def test_the_tables_and_the_view_are_made_and_filled(
    rents: Pipeline, ctx: Context, load: Load, query: Query
) -> None:
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, [*ctx.pipelines.values(), rents])
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "rents": rents})
    upload = await load(f"{HEADER}\nC-1,Ann Lee,,100,31/1/2025\n", pipeline="rents", filename="may.csv")
    assert query("SELECT contract, source_file, upload_id FROM rents") == [("C-1", "may.csv", upload.id)]
    assert query("SELECT tenant_key, name FROM tenants") == [("name:ann lee", "Ann Lee")]
    assert query("SELECT batch_id, contract, amount::int, line FROM intake.rents") == [
        (upload.id, "C-1", 100, 2)
    ]


def test_every_header_of_judgments_is_in_the_documentation() -> None:
    page = (PAGE.parent / "files.md").read_text()
    headers = {header for field in judgments.pipeline.fields.values() for header in field.header}
    assert {header for header in headers if f"`{header}`" not in page} == set()


COMPUTED = Computed("{name}")
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Field("key", header=["Key"], otherwise=COMPUTED), "it is Computed from other fields; expected no header"),
    (lambda: Field("key", normalise=[n.lower], otherwise=COMPUTED), "expected no header, no rules, and not required"),
    (lambda: Field("key", otherwise=COMPUTED, required=True), "expected no header, no rules, and not required"),
    (
        lambda: Pipeline("p", [Entity("rents", ["key"], [Field("key", otherwise=COMPUTED), Field("name")])]),
        "Field rent.key: only fields of the entities before rent can be Computed",
    ),
    (
        lambda: Pipeline(
            "p",
            [
                Entity("tenants", ["key"], [Field("key", otherwise=Computed("{nam}")), Field("name")]),
                Entity("rents", ["id_"], [Field("id_")]),
            ],
        ),
        "Field tenant.key: 'tenant.nam' in its otherwise is not a field; did you mean 'tenant.name'?",
    ),
    (
        lambda: Entity("rents", ["name"], [Field("name")], source_file="name"),
        "Entity rents: source_file 'name' is another column's name",
    ),
    (lambda: Entity("rents", ["name"], [Field("name")], source_file="line"), "is another column's name"),
    (lambda: Entity("rents", ["name"], [Field("name")], source_file="Source File"), "expected lower-case letters"),
    (
        lambda: Pipeline("p", [Entity("rents", ["name"], [Field("name")])], decimal="'"),
        "Pipeline p: decimal expected '.' or ',', got \"'\"",
    ),
    (
        lambda: Pipeline("p", [Entity("rents", ["name"], [Field("name")])], staged_as="rents"),
        "Pipeline p: staged_as expected a schema and a name, got 'rents'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("declare", "sentence"), WRONG)
def test_a_wrong_declaration_says_what_to_mend(declare: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declare()
    assert sentence in str(caught.value)
