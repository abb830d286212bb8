"""A file says by its header which pipeline and platform it is for, and what it lacks where it fits none."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import cast, get_args
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.orders import pipeline as orders
from tests.proof.workers import LONG
from weighbridge.delivery.context import Context
from weighbridge.model.errors import RequestRefused
from weighbridge.pipelines import BUILT_IN
from weighbridge.testing.exports import (
    ExportSpec,
    Family,
    KeywordLayout,
    Level,
    Platform,
    write_demo_exports,
    write_export,
    write_judgments,
    write_keywords,
)
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive
from weighbridge.uploads.recognise import HEAD, Recognised, first_bytes, recognise

CONVERSIONS = "Google Click ID,Conversion Name,Conversion Time,Conversion Value,Conversion Currency"
SPECS = [
    ExportSpec(platform, level=level, ids=ids, variant_headers=variant)
    for platform in get_args(Platform)
    for level in get_args(Level)
    for ids in (False, True)
    for variant in (False, True)
] + [
    ExportSpec("meta", language="fr"),
    ExportSpec("meta", language="it", encoding="cp1252"),
    ExportSpec("meta", day_column=False),
    ExportSpec("meta", duplicate_column=True),
    ExportSpec("google", encoding="utf-16"),
    ExportSpec("google", encoding="utf-8-sig", campaigns=40, days=60),  # more than is looked at
    ExportSpec("tiktok", delimiter=";", line_end="\r\n"),
]


@pytest.fixture
def ctx(ctx: Context) -> Context:
    """With a pipeline of somebody else's."""
    return replace(ctx, pipelines={**BUILT_IN, "orders": orders})


async def of(ctx: Context, path: Path) -> str | None:
    return named(await recognise(ctx, first_bytes(path), path.name))


async def said(ctx: Context, text: str, name: str = "x.csv") -> Recognised:
    return await recognise(ctx, text.encode()[:HEAD], name)


def named(found: Recognised) -> str | None:
    return found.fit.name if found.fit else None


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.platform}-{spec.level}-{spec.encoding}")
async def test_an_ad_platforms_export_is_known(ctx: Context, tmp_path: Path, spec: ExportSpec) -> None:
    write_export(tmp_path / "export.csv", spec)
    assert await of(ctx, tmp_path / "export.csv") == f"ads/{spec.platform}"


@pytest.mark.parametrize("layout", get_args(KeywordLayout))
@pytest.mark.parametrize("rows", [20, 5000])
async def test_keywords_are_known_in_every_layout(
    ctx: Context, tmp_path: Path, layout: KeywordLayout, rows: int
) -> None:
    write_keywords(tmp_path / "k.csv", rows=rows, layout=layout)
    assert await of(ctx, tmp_path / "k.csv") == "keywords"


@pytest.mark.parametrize("family", get_args(Family))
async def test_judgments_are_known(ctx: Context, tmp_path: Path, family: Family) -> None:
    write_judgments(tmp_path / "j.csv", rows=3000, family=family)
    assert await of(ctx, tmp_path / "j.csv") == "judgments"


async def test_the_demos_own_files_are_known(ctx: Context, tmp_path: Path) -> None:
    for written in write_demo_exports(tmp_path):
        found = await of(ctx, written.path)
        assert found is not None
        assert found.removeprefix("ads/") in written.path.name


async def test_conversions_and_a_strangers_orders_are_known(ctx: Context) -> None:
    assert named(await said(ctx, f"{CONVERSIONS}\nabc,Sale,2026-01-31 10:00:00,1,EUR\n")) == "conversions"
    assert named(await said(ctx, "Order,Date,Amount,State\n1,2025-01-01,10.50,open\n")) == "orders"


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("many", [1, 4000])
@pytest.mark.parametrize("wrapper", [None, "data", "export"])
async def test_json_is_known_also_where_it_is_cut(
    ctx: Context, indent: int | None, many: int, wrapper: str | None
) -> None:
    record = {"date_start": "2025-01-01", "date_stop": "2025-01-01", "campaign_name": "x", "spend": "1.2"}
    records = [record] * many
    text = json.dumps({"paging": {"a": [1]}, wrapper: records} if wrapper else records, indent=indent)
    assert named(await said(ctx, text, "x.json")) == "ads/meta"
    lines = "\n".join(json.dumps(record) for record in records)
    assert named(await said(ctx, lines, "x.jsonl")) == "ads/meta"


HEADERS = {
    "ads/meta": ["Day", "Campaign name", "Ad set name", "Ad name", "Amount spent (EUR)", "Impressions", "Clicks (all)"],
    "ads/google": ["Day", "Campaign", "Campaign status", "Ad group", "Impr.", "Clicks", "Cost", "Currency code"],
    "keywords": ["Keyword", "Volume", "KD", "CPC (USD)", "SERP Features"],
    "judgments": ["File #", "Plaintiff", "Defendant", "Amount", "Entry Date", "Court"],
    "conversions": ["GCLID", "Conversion Time", "Conversion Value", "Order ID"],
    "orders": ["Order no.", "Ordered", "Total", "State"],
}  # fmt: skip


@settings(max_examples=300 if LONG else 25, deadline=None)
@given(data=st.data(), delimiter=st.sampled_from(",;\t|"), upper=st.booleans())
def test_neither_order_nor_case_nor_delimiter_matter(
    data: st.DataObject, delimiter: str, upper: bool
) -> None:
    name = data.draw(st.sampled_from(sorted(HEADERS)))
    own = st.text("qzjx", min_size=3, max_size=8).map(lambda text: f"{text} of our own")
    header = data.draw(st.permutations(HEADERS[name] + data.draw(st.lists(own, max_size=3, unique=True))))
    line = delimiter.join(header)
    cells = delimiter.join(["7"] * len(header))
    head = f"{line.upper() if upper else line}\n{cells}\n{cells}\n".encode()
    with TemporaryDirectory() as scratch:
        parts = SimpleNamespace(pipelines={**BUILT_IN, "orders": orders}, scratch=Path(scratch))
        found = asyncio.run(recognise(cast(Context, parts), head, "x.csv"))
    assert named(found) == name, found.sentence
    assert found.fit is not None
    assert {cell.lower() for cell in found.fit.matched} <= {cell.lower() for cell in HEADERS[name]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Day,Campaign,Cost,Clicks\n2025-01-01,a,1,2\n",
            "file ('x.csv'): it fits ads/google and ads/tiktok; choose one.",
        ),
        (
            "Week,Campaign name,Impressions\n2025-01-01,a,3\n",
            "file ('x.csv'): it fits no pipeline. The nearest is ads/meta: The report is not daily: "
            "expected a column 'Day', got 'Week' only.",
        ),
        (
            "a,b,c\n1,2,3\n",
            "file ('x.csv'): it fits no pipeline: ads, conversions, judgments, keywords and orders recognise none ",
        ),
        ("No data available.\n", "file ('x.csv'): it cannot be recognised. The export is empty"),
    ],
)
async def test_what_is_not_sure_gets_a_sentence(ctx: Context, text: str, sentence: str) -> None:
    found = await said(ctx, text)
    assert found.fit is None
    assert found.sentence.startswith(sentence)


async def test_the_nearest_says_which_columns_are_missing(ctx: Context) -> None:
    found = await said(ctx, "Conversion Value,Conversion Currency,Email\n1,EUR,jo@example.com\n")
    assert found.nearest is not None
    assert found.nearest.name == "conversions"
    assert found.nearest.missing == ("Order ID", "Conversion Time")
    assert "jo@example.com" not in found.sentence


async def test_a_list_of_addresses_or_figures_is_no_list_of_keywords(ctx: Context) -> None:
    for text in ("jo@example.com\nal@example.com\n", "4711\n4712\n", "Email\njo@example.com\n"):
        found = await said(ctx, text)
        assert found.fit is None
        assert "@" not in found.sentence
    assert named(await said(ctx, "red shoes\ntotal\nblue shoes 44\n", "list.txt")) == "keywords"


async def test_what_is_no_table_is_refused_as_intake_does(ctx: Context) -> None:
    with pytest.raises(RequestRefused) as refused:
        await recognise(ctx, b"%PDF-1.7", "x.pdf")
    assert refused.value.code == "unsupported_format"
    with pytest.raises(RequestRefused) as refused:
        await recognise(ctx, b"", "x.csv")
    assert refused.value.code == "empty_file"


async def test_a_platform_that_is_named_decides_between_two(
    ctx: Context, workspace: UUID, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("Day,Campaign,Cost,Clicks\n2025-01-01,a,1,2\n")
    wish = Request(workspace_id=workspace, pipeline="auto", filename=file.name)
    with pytest.raises(RequestRefused) as refused:
        await receive(ctx, wish, file)
    assert refused.value.code == "unrecognised_file"
    await receive(ctx, replace(wish, platform="google"), file)
    with pytest.raises(RequestRefused, match=r"platform: expected one of google, meta, tiktok, got 'mta'"):
        await receive(ctx, replace(wish, platform="mta"), file)


async def test_a_file_takes_of_the_scope_what_its_pipeline_has(
    ctx: Context, workspace: UUID, tmp_path: Path
) -> None:
    wish = Request(workspace_id=workspace, pipeline="auto", project_id=7, client_id=uuid4())
    for name, text in (("k.csv", "Keyword,Volume\nshoes,1\n"), ("o.csv", "Order,Date\n1,2025-01-01\n")):
        (tmp_path / name).write_text(text)
        await receive(ctx, replace(wish, filename=name), tmp_path / name)
    (tmp_path / "k.csv").write_text("Keyword,Volume\nboots,1\n")
    with pytest.raises(RequestRefused, match="project_id: expected the number of the project"):
        await receive(ctx, replace(wish, filename="k.csv", project_id=None), tmp_path / "k.csv")
