"""Declarations of entities and pipelines, made of fields (field.py). Frozen, and checked when built.

    judgment = Entity(table="judgments", key=["case_number"], fields=[Field("case_number", str, …), …])
    pipeline = Pipeline(name="judgments", accepts=["csv", "json"], entities=[judgment])

A record of a file becomes one row of the pipeline's last entity (its grain) and takes part in at most one
row of each entity before it (its dimensions). Staging tables and upsert SQL come from the declaration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from weighbridge.model.errors import ConfigError, did_you_mean
from weighbridge.model.field import (
    RESERVED,
    SCOPES,
    SQL_TYPES,
    Computed,
    ComputedDefault,
    Field,
    InHeader,
    NamePath,
    check_name,
    named_in,
)
from weighbridge.model.profile import Profile
from weighbridge.model.upsert import Upsert, keep_known_values

__all__ = [
    "RESERVED",
    "SCOPES",
    "SQL_TYPES",
    "Computed",
    "ComputedDefault",
    "Entity",
    "Field",
    "InHeader",
    "NamePath",
    "Pipeline",
    "Ref",
    "named_in",
]

LONGEST_NAME = 62  # of a table, with the underscore between two names; Postgres cuts at 63
_VIEW = re.compile(r"^[a-z][a-z0-9_]{0,47}\.[a-z][a-z0-9_]{0,47}$")


@dataclass(frozen=True)
class Ref:
    """A column with the id of an earlier entity; NULL if the record names none."""

    name: str
    entity: str


@dataclass(frozen=True)
class Entity:
    """One production table. `key` names fields and refs that identify a row within workspace and scope."""

    table: str
    key: Sequence[str]
    fields: Sequence[Field]
    refs: Sequence[Ref] = ()
    upsert: Upsert = keep_known_values
    name: str = ""  # singular; the entity_type of events and staging views
    scope: Sequence[str] = ()  # which of SCOPES belong to the key
    source_file: str = ""  # a column for the name of the file that first had the row

    def __post_init__(self) -> None:
        for name in ("key", "fields", "refs", "scope"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.name:
            object.__setattr__(self, "name", self.table.removesuffix("s"))
        check_name(self.table, "Entity")
        check_name(self.name, "Entity")
        columns = [f.name for f in self.fields] + [r.name for r in self.refs]
        for column in columns:
            if columns.count(column) > 1:
                raise ConfigError(f"Entity {self.table}: '{column}' is declared twice")
        if self.source_file:
            check_name(self.source_file, "Column")
            if self.source_file in RESERVED or self.source_file in columns:
                raise ConfigError(
                    f"Entity {self.table}: source_file '{self.source_file}' is another column's name"
                )
        if not self.key:
            raise ConfigError(f"Entity {self.table}: expected a key of at least one field, got none")
        for column in self.key:
            if column not in columns:
                raise ConfigError(
                    f"Entity {self.table}: key '{column}' is not a field{did_you_mean(column, columns)}"
                )
        for scope in self.scope:
            if scope not in SCOPES:
                raise ConfigError(
                    f"Entity {self.table}: scope '{scope}' is not one of {', '.join(SCOPES)}"
                    f"{did_you_mean(scope, SCOPES)}"
                )

    def __hash__(self) -> int:
        return hash(self.table)  # its parts need not be hashable

    @property
    def columns(self) -> tuple[str, ...]:
        """The declared columns in order: refs first, as they lead most keys, then fields."""
        return (*(r.name for r in self.refs), *(f.name for f in self.fields))

    @property
    def values(self) -> tuple[str, ...]:
        """The columns an upsert may change."""
        return tuple(c for c in self.columns if c not in self.key)

    def sql_type(self, column: str) -> str:
        return next((f.sql_type for f in self.fields if f.name == column), "uuid")


@dataclass(frozen=True)
class Pipeline:
    """A kind of file and the tables its rows go to."""

    name: str
    entities: Sequence[Entity]
    accepts: Sequence[str] = ("csv", "json")
    profiles: Sequence[Profile] = ()
    min_valid: float = 0.9
    affected: str | None = None  # the grain's date field that IngestionCompleteEvent reports
    nulls: Sequence[str] = ()  # cells that mean "no value", besides empty ones and those of a profile
    decimal: str = ""  # '.' or ',': the decimal mark of ambiguous cells
    day_first: bool | None = None  # whether 3/4 is 3 April, unless the file shows otherwise
    staged_as: str = ""  # "intake.rows": a view of the grain's staged rows, unique by upload and key
    headerless: str = (
        ""  # the grain's field that a text file with no header, and one value a line, is a list of
    )
    # Number of records right after the header that may be aggregates: no key, but a figure. They count as totals.
    leading_totals: int = 0
    # A regular expression over the lines above the header, whose group is the time zone of times without one.
    zone_above: str = ""
    # Fields ("judgment.court") that every file should have besides the required ones. A missing one causes a warning;
    # if more than half are missing, the file is refused. Default: every field that is read from a column. A profile has
    # its own.
    expects: Sequence[str] | None = None
    # If a file has all of these fields, it is of a kind that lacks the expected one.
    instead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sites: bool = False  # uploads must name one of the workspace's sites as client
    _by_name: Mapping[str, Entity] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("entities", "accepts", "profiles", "nulls"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_name(self.name, "Pipeline")
        if not self.entities:
            raise ConfigError(f"Pipeline {self.name}: expected at least one entity, got none")
        if not 0 <= self.min_valid <= 1:
            raise ConfigError(
                f"Pipeline {self.name}: min_valid expected a share from 0 to 1, got {self.min_valid}"
            )
        for kind in self.accepts:
            if kind not in ("csv", "json"):
                raise ConfigError(f"Pipeline {self.name}: accepts 'csv' and 'json', got '{kind}'")
        seen: dict[str, Entity] = {}
        for entity in self.entities:
            if entity.name in seen:
                raise ConfigError(f"Pipeline {self.name}: entity '{entity.name}' is declared twice")
            for ref in entity.refs:
                if ref.entity not in seen:
                    raise ConfigError(
                        f"Entity {entity.table}: '{ref.name}' refers to '{ref.entity}', which is no entity "
                        f"before it{did_you_mean(ref.entity, seen)}"
                    )
            seen[entity.name] = entity
        object.__setattr__(self, "_by_name", seen)
        for entity in self.entities:
            if len(f"{self.name}_{entity.name}") > LONGEST_NAME:
                raise ConfigError(
                    f"Pipeline {self.name}: the staging table is named after pipeline and entity ({entity.name}), "
                    f"expected at most {LONGEST_NAME} characters together; choose shorter ones"
                )
        if self.decimal not in ("", ".", ","):
            raise ConfigError(f"Pipeline {self.name}: decimal expected '.' or ',', got {self.decimal!r}")
        if self.staged_as and not _VIEW.match(self.staged_as):
            raise ConfigError(
                f"Pipeline {self.name}: staged_as expected a schema and a name, got {self.staged_as!r}"
            )
        if self.leading_totals < 0:
            raise ConfigError(
                f"Pipeline {self.name}: leading_totals expected 0 or more, got {self.leading_totals}"
            )
        self._check_headerless()
        self._check_repeats()
        fields = self.fields
        for entity in self.entities:
            for declared in entity.fields:
                if isinstance(declared.otherwise, Computed) and entity is self.grain:
                    raise ConfigError(
                        f"Field {entity.name}.{declared.name}: only fields of the entities before "
                        f"{self.grain.name} can be Computed"
                    )
                self._check_others(entity, declared)
                for name in _sources(entity, declared):
                    if name not in fields:
                        raise ConfigError(
                            f"Field {entity.name}.{declared.name}: '{name}' in its otherwise is not a field"
                            f"{did_you_mean(name, fields)}"
                        )
        for name in self.expects or ():
            if name not in fields:
                raise ConfigError(
                    f"Pipeline {self.name}: '{name}' in expects is not a field{did_you_mean(name, fields)}"
                )
        for name in (*self.instead, *(name for others in self.instead.values() for name in others)):
            if name not in fields:
                raise ConfigError(
                    f"Pipeline {self.name}: '{name}' in instead is not a field{did_you_mean(name, fields)}"
                )
        for profile in self.profiles:
            daily = [profile.daily.field] if profile.daily else []
            results = [profile.results.field] if profile.results else []
            for name in (*profile.headers, *profile.expects, *daily, *results):
                if name not in fields:
                    raise ConfigError(
                        f"Profile {profile.name}: '{name}' is not a field of pipeline {self.name}"
                        f"{did_you_mean(name, fields)}"
                    )
        if self.affected is not None and self.affected not in self.grain.columns:
            raise ConfigError(
                f"Pipeline {self.name}: affected '{self.affected}' is not a field of {self.grain.table}"
                f"{did_you_mean(self.affected, self.grain.columns)}"
            )

    def _check_others(self, entity: Entity, declared: Field) -> None:
        """Rules may combine fields only in the last entity, whose records have all of them."""
        own = [f"{self.grain.name}.{each.name}" for each in self.grain.fields]
        named = [name for rule in declared.validate for name in named_in(rule.predicate)]
        if isinstance(declared.otherwise, ComputedDefault):
            named += declared.otherwise.fields
        for name in named:
            if entity is not self.grain or name not in own:
                raise ConfigError(
                    f"Field {entity.name}.{declared.name}: only rules of the entity {self.grain.name} may name other "
                    f"fields, and only fields of that entity; got '{name}'{did_you_mean(name, own)}"
                )

    def _check_headerless(self) -> None:
        declared = [each.name for each in self.grain.fields]
        if self.headerless and self.headerless not in declared:
            raise ConfigError(
                f"Pipeline {self.name}: headerless '{self.headerless}' is not a field of {self.grain.table}"
                f"{did_you_mean(self.headerless, declared)}"
            )

    def _check_repeats(self) -> None:
        """If records with the same key are combined, all values must be combinable."""
        for entity in self.entities:
            refs = [ref.name for ref in entity.refs if ref.name not in entity.key]
            if entity.upsert.repeats and (refs or entity is not self.grain):
                raise ConfigError(
                    f"Entity {entity.table}: {entity.upsert!r} is only for the pipeline's last "
                    f"entity, with all its refs in the key; got {', '.join(refs) or 'an earlier entity'}"
                )

    def __hash__(self) -> int:
        return hash(self.name)  # its parts need not be hashable

    @property
    def grain(self) -> Entity:
        """The entity with one row per record of the file."""
        return self.entities[-1]

    @property
    def dimensions(self) -> tuple[Entity, ...]:
        return tuple(self.entities[:-1])

    @cached_property
    def fields(self) -> dict[str, Field]:
        """Every field by its full name, such as "campaign.name"."""
        return {
            f"{entity.name}.{declared.name}": declared
            for entity in self.entities
            for declared in entity.fields
        }

    @cached_property
    def required(self) -> frozenset[str]:
        """The fields that every record must have: required ones, and those of the grain's key."""
        of_key = {f"{self.grain.name}.{name}" for name in self.grain.key}
        return frozenset(
            name for name, declared in self.fields.items() if declared.required or name in of_key
        )

    @property
    def grouped(self) -> bool:
        """Whether rows with the same affected date form a group, for which a receipt can be stored."""
        return self.affected is not None and self.grain.key[0] == self.affected

    @property
    def scope(self) -> tuple[str, ...]:
        """What the pipeline needs to know about an upload besides its workspace."""
        return tuple(s for s in SCOPES if any(s in e.scope for e in self.entities))

    def expected(self, profile: Profile | None) -> tuple[str, ...]:
        """The fields that a file should have a column for."""
        if profile is not None:
            return tuple(profile.expects)
        if self.expects is not None:
            return tuple(self.expects)
        made = (Computed, NamePath)
        return tuple(name for name, each in self.fields.items() if not isinstance(each.otherwise, made))

    def entity(self, name: str) -> Entity:
        return self._by_name[name]

    @property
    def measures(self) -> dict[str, Field]:
        """The figures of the grain, if some of them are additive; otherwise numbers are attributes."""
        if not any(each.additive for each in self.grain.fields):
            return {}
        return {
            f"{self.grain.name}.{each.name}": each
            for each in self.grain.fields
            if each.type in (int, Decimal)
        }

    @property
    def personal(self) -> bool:
        """Whether any field contains personal data."""
        return any(declared.personal for declared in self.fields.values())

    @property
    def lane_scopes(self) -> list[str] | None:
        """Two rows can only be the same if they agree in these scopes, which all keys of the pipeline have.

        None: the order of files does not matter.
        """
        if not any(entity.upsert.ordered for entity in self.entities):
            return None
        return [name for name in SCOPES if all(name in entity.scope for entity in self.entities)]

    def lane(self, client_id: object, platform: object, project_id: object) -> str | None:
        """Files with equal lanes may have the same rows; others never do. As pipeline_tables.fill_lanes."""
        if self.lane_scopes is None:
            return None
        values = {"client_id": client_id, "platform": platform, "project_id": project_id}
        return "/".join([self.name, *(str(values[name] or "") for name in self.lane_scopes)])

    def profile(self, platform: str) -> Profile | None:
        return next((p for p in self.profiles if p.name == platform), None)


def _sources(entity: Entity, declared: Field) -> tuple[str, ...]:
    """The full names of the fields that a value can come from."""
    match declared.otherwise:
        case None:
            return ()
        case Computed():
            return tuple(f"{entity.name}.{name}" for name in declared.otherwise.fields)
        case _:
            return declared.otherwise.fields
