"""Rules on one column, as data. `weighbridge.rules` has the ready-made ones and runs them all.

An expression is DuckDB SQL over a whole column, with `{x}` for the column, so a rule costs the
same for ten rows and for ten million. `{decimal}` and `{day_first}` stand for decisions made once for the
file: its decimal mark ('.' or ','; '' while undecided), and whether 3/4 is the third of April (true, false;
NULL while undecided). `{order}` is the same for strptime, %d/%m or %m/%d; `{year_first}` is true where 25/4/3
is the third of April 2025. `{mark}` and `{group}` are
regular expressions for the decimal mark and the thousands separator that goes with it; `{by_three}` and `{by_two}`
for digits in groups of three and, in a file with Indian grouping, of two; `{zeros}` for the zeros that a
whole number may have behind the mark. `{today}` is the day of the check.

A validator of the pipeline's last entity may use other fields of the record: `{sale.currency}` is the typed value, NULL
if there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Why a normaliser may have failed, recognised from the text: a more precise code than the rule's own."""

    pattern: str  # a regular expression over the whole cell
    code: str
    expected: str  # with {value} for the value below
    hint: str = ""
    when: str = ""  # SQL over {x} that must also be true
    value: str = ""  # SQL


@dataclass(frozen=True)
class Normaliser:
    """Text in, cleaned text or a typed value out; NULL if the text is not valid."""

    name: str
    expression: str
    expected: str = ""  # "an amount"
    hint: str = ""  # "Use 1234.56 or $1,234.56."
    code: str = ""  # "bad_amount"; empty for rules that cannot fail
    reasons: Sequence[Reason] = ()
    reduces: str = (
        ""  # SQL over {x}, cheap: is the cell a range of which one figure is kept? Such cells are reported
    )

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Validator:
    """A predicate over the typed value; a row for which it is false is rejected with `code`."""

    name: str
    predicate: str
    code: str
    expected: str
    hint: str = ""

    def __repr__(self) -> str:
        return self.name
