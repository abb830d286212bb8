"""Beside the checks: ids that were made of names, ids that a spreadsheet has rounded, ids with several names.

The questions are asked of the header and of `tuples`, never of each record.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by plan.quoted and plan.literal)

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import Entity, NamePath
from weighbridge.rules import dimensions, normalise
from weighbridge.rules.headers import nearest, synonyms
from weighbridge.rules.plan import Plan, literal, quoted

EXACT = 15  # digits that a spreadsheet keeps; it writes zeros in the place of the others
# So many zeros beyond them, over all ids of a column, are no accident: one file in ten thousand has them by chance.
SURE = 4
LIKELY = 2
FEW = 1_000
RENAMED = 3  # of a single id: two campaigns that became one have two names
_ROUNDED = f"length(id) > {EXACT} AND rtrim(id[{EXACT + 1}:], '0') = ''"
_DOUBTFUL = f"first <> last OR ({_ROUNDED})"
_ID_WORDS = {"id", "ids", "identifier", "identifiant", "identificador", "kennung", "key", "number", "no"}


def from_names(plan: Plan) -> dict[str, str]:
    """The warning `ids_from_names`: the entities whose ids the file does not have."""
    made = [
        (entity, field) for entity in dimensions.entities(plan) if (field := _made_of_names(entity, plan))
    ]
    if not made:
        return {}
    levels = [entity.name.replace("_", " ") for entity, _ in made]
    headers = [synonyms(name, plan.pipeline.fields[name], plan.pipeline, plan.profile)[0] for _, name in made]
    close = (nearest(name, plan.layout, plan.pipeline, plan.profile) for _, name in made)
    guesses = [header for header in dict.fromkeys(close) if _is_id(header)]
    hint = f" Perhaps the ids are in {_and(map(repr, guesses))}, which no field uses." if guesses else ""
    columns = f"the column{'s' if len(headers) > 1 else ''} {_and(map(repr, headers))}"
    return {
        "ids_from_names": f"The file has no ids of {_and(levels)}: they were made of the names. An export with ids is "
        f"stored as other {levels[0]}s, and figures that are in both exports count twice. Add {columns} "
        f"to the export.{hint}"
    }


def check(db: Any, plan: Plan, combos: Any) -> dict[str, str]:
    """The warnings `ids_rounded` and `several_names` of the ids in `tuples`, which are made of `combos`.

    Raises FileRefused: `ids_rounded`.
    """
    with_ids = [entity for entity in dimensions.entities(plan) if _id_column(entity) in plan.layout.columns]
    if len(combos) < FEW:  # for so few, planning a question takes longer than to look at them here
        with_ids = [entity for entity in with_ids if _may_be_doubtful(entity, plan, combos)]
    if not with_ids:
        return {}
    # Nearly no file has any: a short question for all, and the long one only for those that have.
    asked = " UNION ALL ".join(
        f"SELECT bool_or({_DOUBTFUL}) FROM ({_ids(entity, plan)})" for entity in with_ids
    )
    answers = db.execute(asked).fetchall()
    doubtful = [entity for entity, (found,) in zip(with_ids, answers, strict=True) if found]
    rows = [db.execute(_summary(entity, plan)).fetchall()[0] for entity in doubtful]
    warnings: dict[str, str] = {}
    for row in rows:
        found = _Found(*row)
        header = plan.layout.mapping[found.column]
        if found.rounded and found.rounded == found.long and found.zeros >= LIKELY:
            sentence = (
                f"{header!r}: ids have lost digits in a spreadsheet, such as {found.example!r}: from the 16th digit on "
                "{all} zeros. Export again and do not open the file in a spreadsheet program."
            )
            several = found.rounded > 1 and found.zeros >= SURE
            if several or (found.names and found.zeros >= RENAMED):
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


def _may_be_doubtful(entity: Entity, plan: Plan, combos: Any) -> bool:
    """May an id be rounded, or have several names? It may be said too often: the cells have not met their rules."""
    own = next(column for column in plan.columns if column.name == _id_column(entity))
    if len(own.cells) > 1 or any(step.expression != normalise.platform_id.expression for step in own.steps):
        return True  # what its rules make of it is known in `tuples` only
    path = own.field.otherwise
    assert isinstance(path, NamePath)
    cells = [*own.cells, *plan.layout.columns.get(path.names[-1], ())]
    named = set(zip(*(combos.column(f"t{p}").to_pylist() for p in cells), strict=True))
    found = {each[0] for each in named}
    return len(found) < len(named) or any(_is_rounded(each) for each in found if each)


def _is_rounded(written: str) -> bool:
    beyond = written[EXACT:]
    return bool(beyond) and not beyond.strip("0")


@dataclass(frozen=True)
class _Found:
    """What `tuples` shows of one entity's ids."""

    column: str
    long: int  # ids of more digits than a spreadsheet keeps
    rounded: int  # those of them that have only zeros beyond
    zeros: int  # so many, over all of them
    example: str | None
    id: str | None  # one that has several names
    names: list[str] | None


def _summary(entity: Entity, plan: Plan) -> str:
    """SELECT the parts of `_Found` for one entity."""
    long = f"length(id) > {EXACT}"
    return f"""SELECT {literal(_id_column(entity))}, count(*) FILTER ({long}), count(*) FILTER ({_ROUNDED}),
            coalesce(sum(length(id) - {EXACT}) FILTER ({_ROUNDED}), 0)::BIGINT, min(id) FILTER ({_ROUNDED}),
            min(id) FILTER (first <> last), arg_min([first, last], id) FILTER (first <> last)
        FROM ({_ids(entity, plan)})"""


def _ids(entity: Entity, plan: Plan) -> str:
    """SELECT each id of an entity once, with the first and the last of its names in the alphabet."""
    full = _id_column(entity)
    path = plan.pipeline.fields[full].otherwise
    assert isinstance(path, NamePath)
    name = quoted(path.names[-1]) if path.names[-1] in plan.layout.columns else "NULL::VARCHAR"
    return f"""SELECT {quoted(full)} AS id, min({name}) AS first, max({name}) AS last FROM tuples
        WHERE NOT bad AND {quoted(full)} IS NOT NULL GROUP BY 1"""


def _id_column(entity: Entity) -> str:
    """The field of an entity's id that names can make; empty where it has none."""
    for declared in entity.fields:
        if isinstance(declared.otherwise, NamePath):
            return f"{entity.name}.{declared.name}"
    return ""


def _made_of_names(entity: Entity, plan: Plan) -> str:
    full = _id_column(entity)
    return full if full and full not in plan.layout.columns else ""


def _is_id(header: str) -> bool:
    """`Campaign delivery` is close to `Campaign ID` and is none."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header).lower())
    return bool(_ID_WORDS & set(words)) or "#" in header


def _and(words: Any) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
