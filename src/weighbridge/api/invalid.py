"""What pydantic finds wrong with a request → a sentence of ours.

Places and expectations, not the values: they may be personal.
"""

from __future__ import annotations

from typing import Any

from weighbridge.api.models import RetryIn
from weighbridge.model.errors import did_you_mean

_EXPECTED = {  # by pydantic's type of error; `{ge}` and the like are its own words
    "int_parsing": "a whole number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "uuid_parsing": "a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "enum": "{expected}",
    "model_attributes_type": "a JSON object, sent as Content-Type: application/json",
    "dict_type": "a JSON object, sent as Content-Type: application/json",
}
_BODY_NAMES = tuple(RetryIn.model_fields)  # the one body that is not a stream


def sentence(error: dict[str, Any]) -> str:
    """`query.limit: expected at most 200.`"""
    kind, place, said = error["type"], [str(part) for part in error["loc"]], error.get("ctx", {})
    if kind == "json_invalid":
        return f"{place[0]}: expected JSON, got something else at character {place[-1]}."
    if kind == "missing":
        return f"{'.'.join(place)}: expected a value, got none."
    if kind == "extra_forbidden":
        hint = did_you_mean(place[-1], _BODY_NAMES) or f"; there is {', '.join(_BODY_NAMES)}."
        return f"{'.'.join(place[:-1])}: {place[-1][:60]!r} is not a field{hint}"
    if kind not in _EXPECTED:
        return f"{'.'.join(place)}: {error['msg']}."
    expected = _EXPECTED[kind].format_map(said)
    choices = expected.replace(" or ", ", ").replace("'", "").split(", ") if kind == "enum" else []
    hint = did_you_mean(str(error.get("input")), choices) if choices else ""
    return f"{'.'.join(place)}: expected {'one of ' if choices else ''}{expected}{hint or '.'}"
