"""Translate pydantic's validation errors into messages.

The messages contain field names and expectations, but no values, which may be personal data.
"""

from __future__ import annotations

from typing import Any, get_args

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from weighbridge.model.errors import did_you_mean
from weighbridge.observe.redact import quote_input

_EXPECTED = {  # by pydantic's error type; placeholders such as `{ge}` come from its context
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "uuid_parsing": "a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "enum": "{expected}",
    "string_type": "text",
    "string_pattern_mismatch": "text without control characters",
    "list_type": "a list",
    "model_attributes_type": "a JSON object, sent as Content-Type: application/json",
    "dict_type": "a JSON object, sent as Content-Type: application/json",
}

NO_NUL = r"^[^\x00]*$"  # Postgres cannot store NUL in text


def sentences(error: RequestValidationError, route: object) -> str:
    """`query.limit: expected at most 200.`, one sentence per error."""
    known = _names_in_body(route)
    return " ".join(_sentence(each, known) for each in error.errors())


def _names_in_body(route: object) -> list[str]:
    """The fields that a route's JSON body can have."""
    if not isinstance(route, APIRoute) or route.body_field is None:
        return []
    declared = route.body_field.field_info.annotation
    models = [each for each in (declared, *get_args(declared)) if hasattr(each, "model_fields")]
    return [name for model in models for name in model.model_fields]


def _sentence(error: dict[str, Any], known: list[str]) -> str:
    kind, location, details = error["type"], [str(part) for part in error["loc"]], error.get("ctx", {})
    if kind == "json_invalid":
        return f"{location[0]}: expected JSON, got something else at character {location[-1]}."
    if kind == "missing":
        return f"{'.'.join(location)}: expected a value, got none."
    if kind == "extra_forbidden":
        hint = did_you_mean(location[-1], known) or f"; there is {', '.join(known)}."
        return f"{'.'.join(location[:-1])}: {quote_input(location[-1])} is not a field{hint}"
    if kind not in _EXPECTED:
        return f"{'.'.join(location)}: {error['msg']}."
    expected = _EXPECTED[kind].format_map(details)
    choices = expected.replace(" or ", ", ").replace("'", "").split(", ") if kind == "enum" else []
    hint = did_you_mean(str(error.get("input")), choices) if choices else ""
    return f"{'.'.join(location)}: expected {'one of ' if choices else ''}{expected}{hint or '.'}"
