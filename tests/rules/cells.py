"""A column of cells in, their values, rejections and warnings out."""

from __future__ import annotations

from typing import Any

from rules.checking import Outcome, check_text
from weighbridge import Entity, Field, Normaliser, Pipeline
from weighbridge.model.read_options import ReadOptions


def pipeline(
    kind: type, *rules: Normaliser, personal: bool = False, person: type = str, **options: Any
) -> Pipeline:
    fields = [
        Field("no", int, header=["No"], required=True),
        Field("value", kind, header=["Value"], normalise=rules),
        Field("person", person, header=["Person"], personal=personal),
    ]
    return Pipeline(
        "values", [Entity("values", ["no"], fields, name="one")], min_valid=0, expects=(), **options
    )


def check(cells: list[str], kind: type, *rules: Normaliser, options: Any = None, **more: Any) -> Outcome:
    declared = {
        key: more.pop(key)
        for key in ("decimal", "day_first", "personal", "person", "zone_above")
        if key in more
    }
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    above, persons = more.pop("above", ""), more.pop("persons", None)
    if persons:
        quoted = [f"{cell};{person}" for cell, person in zip(quoted, persons, strict=True)]
    header = "No;Value;Person" if persons else "No;Value"
    text = above + f"{header}\n" + "".join(f"{i};{cell}\n" for i, cell in enumerate(quoted))
    options = ReadOptions(**(options or {}))
    return check_text(text, None, pipeline=pipeline(kind, *rules, **declared), options=options, **more)


def values(outcome: Outcome) -> dict[int, Any]:
    return {row["no"]: row["value"] for row in outcome.rows["one"]}


def agree(cells: list[str], truths: list[Any], outcome: Outcome) -> None:
    """Each cell has its true value, or is rejected if it has none."""
    read = values(outcome)
    assert {i: read.get(i) for i in range(len(cells))} == dict(enumerate(truths)), cells
    assert outcome.bins.rejected == sum(truth is None for truth in truths)
