"""The declaration of one column: its type, headers and rules, and the source of its value if the file has none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from weighbridge.model.errors import ConfigError
from weighbridge.model.rule import Normaliser, Validator

SQL_TYPES: Mapping[type, str] = {
    str: "text",
    int: "bigint",
    Decimal: "numeric(18,6)",
    date: "date",
    datetime: "timestamptz",
    bool: "boolean",
}
SCOPES = (
    "client_id",
    "platform",
    "project_id",
)  # scope columns of an upload, besides the workspace
RESERVED = frozenset({"id", "workspace_id", *SCOPES, "upload_id", "line", "created_at", "updated_at"})
_NAME = re.compile(r"^[a-z][a-z0-9_]{0,47}$")


@dataclass(frozen=True)
class NamePath:
    """An external id built from names: `name:` and the hash of the folded names, for files without ids."""

    names: Sequence[str]  # "campaign.name", "ad_set.name": entity and field, outermost first

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.names)


@dataclass(frozen=True)
class InHeader:
    """The currency in brackets in the header of another field: `Amount spent (EUR)`."""

    of: str  # "daily_metric.spend"

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Computed:
    """A value that is always computed: DuckDB SQL over other fields of the same entity, `{name}` for each."""

    expression: str

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(re.findall(r"\{([a-z]\w*)\}", self.expression)))


@dataclass(frozen=True)
class ComputedDefault:
    """A value of the pipeline's last entity that is computed if a record has none.

    DuckDB SQL over other fields of the same entity, `{sale.gclid}` for each.
    """

    expression: str

    @property
    def fields(self) -> tuple[str, ...]:
        return named_in(self.expression)


@dataclass(frozen=True)
class Field:
    """One column of a production table and how to find and read it in a file."""

    name: str
    type: type = str
    header: Sequence[str] = ()  # synonyms; case, spaces and punctuation at the ends do not matter
    normalise: Sequence[Normaliser] = ()
    validate: Sequence[Validator] = ()
    required: bool = False  # a file without the column fails; a row without a value is rejected
    otherwise: NamePath | InHeader | Computed | ComputedDefault | None = (
        None  # source of the value if the file has none
    )
    personal: bool = False  # no message, log line or response repeats its values
    label: str = ""  # its name in messages; default: the field's name
    additive: bool = False  # values of several records may be added up: spend may, reach may not

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", tuple(self.header))
        object.__setattr__(self, "normalise", tuple(self.normalise))
        object.__setattr__(self, "validate", tuple(self.validate))
        check_name(self.name, "Field")
        if self.name in RESERVED:
            raise ConfigError(f"Field {self.name}: the name is reserved by Weighbridge; choose another")
        if self.type not in SQL_TYPES:
            known = ", ".join(t.__name__ for t in SQL_TYPES)
            raise ConfigError(f"Field {self.name}: expected a type of {known}, got {self.type!r}")
        if isinstance(self.otherwise, Computed) and (
            self.header or self.normalise or self.validate or self.required
        ):
            raise ConfigError(
                f"Field {self.name}: it is Computed from other fields; expected no header, no rules, and not required"
            )

    @property
    def sql_type(self) -> str:
        return SQL_TYPES[self.type]


def named_in(expression: str) -> tuple[str, ...]:
    """Other fields that a rule refers to: `{sale.currency}`."""
    return tuple(dict.fromkeys(re.findall(r"\{([a-z]\w*\.[a-z]\w*)\}", expression)))


def check_name(name: str, what: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(
            f"{what} {name!r}: expected lower-case letters, digits and _, at most 48, a letter first"
        )
