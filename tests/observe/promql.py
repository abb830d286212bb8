"""As much of PromQL as it takes to find the names in an expression. What it does not know, it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
      | (?P<range> \[ \s* (?: \d+[smhdw] | \$__rate_interval ) \s* \] )
      | (?P<number> \d+ (?:\.\d+)? )
      | (?P<word> [A-Za-z_:][A-Za-z0-9_:]* )
      | (?P<sign> [=!]~ | [=!<>]= | [-+*/%^(){},=<>] )
    )""",
    re.VERBOSE,
)
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_OPERATORS = {"and", "or", "unless", "bool", "offset"}
FUNCTIONS = {"sum", "max", "rate", "increase", "histogram_quantile", "absent"}  # those that we use
_PAIRS = {")": "(", "}": "{"}


@dataclass
class Named:
    """What an expression names."""

    metrics: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)


def named(expression: str) -> Named:
    """A metric is a word that is no function, operator or label. ValueError for what cannot be read."""
    found = Named()
    brackets: list[tuple[str, bool]] = []  # those that are open, and whether they hold labels
    grouped = False
    for (kind, text), (_, after) in pairwise([*_tokens(expression), ("end", "")]):
        match kind, text:
            case "sign", "(" | "{":
                brackets.append((text, grouped or text == "{"))
                grouped = False
            case "sign", ")" | "}":
                if not brackets or brackets.pop()[0] != _PAIRS[text]:
                    raise ValueError(f"{expression}: {text} closes nothing")
            case "word", _ if brackets and brackets[-1][1]:
                found.labels.add(text)
            case "word", _ if text in _GROUPING:
                grouped = after == "("
            case "word", _ if text in _OPERATORS:
                pass
            case "word", _ if after == "(" or after in _GROUPING:
                if text not in FUNCTIONS:
                    raise ValueError(f"{expression}: {text} is no function that we know")
            case "word", _:
                found.metrics.add(text)
    if brackets:
        raise ValueError(f"{expression}: {brackets[-1][0]} is never closed")
    return found


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    text, at = expression.strip(), 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{expression}: cannot be read from {text[at:]!r} on")
        assert token.lastgroup is not None
        yield token.lastgroup, token[token.lastgroup]
        at = token.end()
