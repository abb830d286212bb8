"""Called by run_checks.py: ids computed from names, ids that a spreadsheet has rounded, ids with several names.

These checks read the header and the table `tuples` (dimensions.py), not every record.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from weighbridge.model.counts import with_and
from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import Entity, NamePath
from weighbridge.rules import dimensions, normalise
from weighbridge.rules.check_plan import CheckPlan, literal, quoted
from weighbridge.rules.headers import nearest, synonyms

KEPT_DIGITS = 15  # a spreadsheet replaces further digits with zeros
# Zeros after these digits, over all ids of a column. Four occur by chance in one file of ten thousand.
ZEROS_TO_REFUSE = 4
ZEROS_TO_WARN = 2
ZEROS_TO_REFUSE_RENAMED = 3  # of a single id with two names: two campaigns became one
FEW_COMBINATIONS = 1_000
_ROUNDED = f"length(id) > {KEPT_DIGITS} AND rtrim(id[{KEPT_DIGITS + 1}:], '0') = ''"
_DOUBTFUL = f"first <> last OR ({_ROUNDED})"
_ID_WORDS = {"id", "ids", "identifier", "identifiant", "identificador", "kennung", "key", "number", "no"}


def from_names(plan: CheckPlan) -> dict[str, str]:
    """The warning `ids_from_names`: entities whose ids are not in the file."""
    made = [
        (entity, field) for entity in dimensions.entities(plan) if (field := _made_of_names(entity, plan))
    ]
    if not made:
        return {}
    levels = [entity.name.replace("_", " ") for entity, _ in made]
    headers = [synonyms(name, plan.pipeline.fields[name], plan.pipeline, plan.profile)[0] for _, name in made]
    close = (nearest(name, plan.layout, plan.pipeline, plan.profile) for _, name in made)
    guesses = [header for header in dict.fromkeys(close) if _is_id(header)]
    hint = f" Perhaps the ids are in {with_and(map(repr, guesses))}, which no field uses." if guesses else ""
    columns = f"the column{'s' if len(headers) > 1 else ''} {with_and(map(repr, headers))}"
    return {
        "ids_from_names": f"The file has no ids of {with_and(levels)}: they were made from the names. An export with "
        f"ids is stored as other {levels[0]}s, and figures that are in both exports count twice. Add {columns} "
        f"to the export.{hint}"
    }


def check(db: Any, plan: CheckPlan, combos: Any) -> dict[str, str]:
    """The warnings `ids_rounded` and `several_names`. `combos`: the combinations of cells that `tuples` is made of.

    Raises FileRefused: `ids_rounded`.
    """
    with_ids = [entity for entity in dimensions.entities(plan) if _id_column(entity) in plan.layout.columns]
    if len(combos) < FEW_COMBINATIONS:  # planning a query would take longer than this loop
        with_ids = [entity for entity in with_ids if _may_be_doubtful(entity, plan, combos)]
    if not with_ids:
        return {}
    # Nearly all files pass: one short query for all entities, a detailed one only for doubtful ids.
    query = " UNION ALL ".join(
        f"SELECT bool_or({_DOUBTFUL}) FROM ({_ids(entity, plan)})" for entity in with_ids
    )
    answers = db.execute(query).fetchall()
    doubtful = [entity for entity, (found,) in zip(with_ids, answers, strict=True) if found]
    rows = [db.execute(_summary(entity, plan)).fetchall()[0] for entity in doubtful]
    warnings: dict[str, str] = {}
    for row in rows:
        found = _Found(*row)
        header = plan.layout.mapping[found.column]
        if found.rounded and found.rounded == found.long and found.zeros >= ZEROS_TO_WARN:
            sentence = (
                f"{header!r}: ids have lost digits in a spreadsheet, such as {found.example!r}: from the 16th digit on "
                "{all} zeros. Export again and do not open the file in a spreadsheet program."
            )
            several = found.rounded > 1 and found.zeros >= ZEROS_TO_REFUSE
            if several or (found.names and found.zeros >= ZEROS_TO_REFUSE_RENAMED):
                raise FileRefused("ids_rounded", sentence.format(all="all of them have"))
            warnings.setdefault(
                "ids_rounded", sentence.replace("have lost", "may have lost").format(all="they have")
            )
        if found.names:
            shown = f": {found.id!r} is {found.names[0]!r} and {found.names[-1]!r}"
            warnings.setdefault(
                "several_names",
                f"{header!r}: one id has several names{'' if plan.pipeline.personal else shown}. "
                "The name of the latest day was kept.",
            )
    return warnings


def _may_be_doubtful(entity: Entity, plan: CheckPlan, combos: Any) -> bool:
    """Whether an id may be rounded or have several names. True too often: rules are not applied to these cells yet."""
    own = next(column for column in plan.columns if column.name == _id_column(entity))
    if len(own.cells) > 1 or any(step.expression != normalise.platform_id.expression for step in own.steps):
        return True  # only `tuples` has the value after its rules
    path = own.field.otherwise
    assert isinstance(path, NamePath)
    cells = [*own.cells, *plan.layout.columns.get(path.names[-1], ())]
    named = set(zip(*(combos.column(f"t{p}").to_pylist() for p in cells), strict=True))
    found = {each[0] for each in named}
    return len(found) < len(named) or any(_is_rounded(each) for each in found if each)


def _is_rounded(written: str) -> bool:
    beyond = written[KEPT_DIGITS:]
    return bool(beyond) and not beyond.strip("0")


@dataclass(frozen=True)
class _Found:
    """Counts and examples of one entity's ids in `tuples`."""

    column: str
    long: int  # number of ids with more digits than a spreadsheet keeps
    rounded: int  # number of these with only zeros after the kept digits
    zeros: int  # number of these zeros in all ids
    example: str | None
    id: str | None  # an id with several names
    names: list[str] | None


def _summary(entity: Entity, plan: CheckPlan) -> str:
    """SELECT the parts of `_Found` for one entity."""
    long = f"length(id) > {KEPT_DIGITS}"
    return f"""SELECT {literal(_id_column(entity))}, count(*) FILTER ({long}), count(*) FILTER ({_ROUNDED}),
            coalesce(sum(length(id) - {KEPT_DIGITS}) FILTER ({_ROUNDED}), 0)::BIGINT, min(id) FILTER ({_ROUNDED}),
            min(id) FILTER (first <> last), arg_min([first, last], id) FILTER (first <> last)
        FROM ({_ids(entity, plan)})"""


def _ids(entity: Entity, plan: CheckPlan) -> str:
    """SELECT each id of an entity once, with its alphabetically first and last name."""
    full = _id_column(entity)
    path = plan.pipeline.fields[full].otherwise
    assert isinstance(path, NamePath)
    name = quoted(path.names[-1]) if path.names[-1] in plan.layout.columns else "NULL::VARCHAR"
    return f"""SELECT {quoted(full)} AS id, min({name}) AS first, max({name}) AS last FROM tuples
        WHERE NOT bad AND {quoted(full)} IS NOT NULL GROUP BY 1"""


def _id_column(entity: Entity) -> str:
    """The id field of an entity that can be computed from names; empty if it has none."""
    for declared in entity.fields:
        if isinstance(declared.otherwise, NamePath):
            return f"{entity.name}.{declared.name}"
    return ""


def _made_of_names(entity: Entity, plan: CheckPlan) -> str:
    full = _id_column(entity)
    return full if full and full not in plan.layout.columns else ""


def _is_id(header: str) -> bool:
    """Whether a header names an id. `Campaign delivery` is similar to `Campaign ID`, but is not an id."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header).lower())
    return bool(_ID_WORDS & set(words)) or "#" in header
