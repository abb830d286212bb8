"""The OpenAPI document as an HTML page: routes, parameters, bodies, responses and schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

Json = dict[str, Any]


def html(document: Json) -> str:
    """The body of the page."""
    info, routes = document["info"], list(_routes(document))
    rows = "".join(_line_of(*route) for route in routes)
    sections = "".join(_section(*route) for route in routes)
    shapes = "".join(_shape(*shape) for shape in sorted(_schemas(document).items()))
    return (
        f"<h1>{escape(info['title'])}</h1>"
        f'<p class="soft">Version {escape(info["version"])}; for programs: '
        '<a href="/api/openapi.json">openapi.json</a></p>'
        f'{_prose(info.get("description", ""))}<h2>Routes</h2><ul class="routes">{rows}</ul>{sections}'
        f"<h2>Schemas</h2>{shapes}"
    )


def _routes(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def _schemas(document: Json) -> dict[str, Json]:
    """The documented responses, without FastAPI's own validation error, which this API does not use."""
    found: dict[str, Json] = document.get("components", {}).get("schemas", {})
    return {
        name: schema
        for name, schema in found.items()
        if name not in ("HTTPValidationError", "ValidationError")
    }


def _line_of(method: str, path: str, operation: Json) -> str:
    what = _first_sentence(operation.get("description", ""))
    return (
        f'<li>{_method(method)} <a href="#{escape(operation["operationId"])}"><code>{escape(path)}</code></a>'
        f' <span class="soft">{_inline(what)}</span></li>'
    )


def _section(method: str, path: str, operation: Json) -> str:
    parts = [
        f'<section id="{escape(operation["operationId"])}">',
        f"<h3>{_method(method)} <code>{escape(path)}</code></h3>",
        _prose(operation.get("description", "")),
        "" if operation.get("security") else '<p class="soft">Public.</p>',
    ]
    if parameters := operation.get("parameters"):
        rows = [
            (
                _name(p["name"], p.get("required", False)),
                _described({**p["schema"], **p}, f"in the {p['in']}"),
            )
            for p in parameters
        ]
        parts += ["<h4>Parameters</h4>", _table(rows)]
    if body := operation.get("requestBody"):
        parts += [
            "<h4>Body</h4>",
            _prose(body.get("description", "")),
            *map(_content, body["content"].items()),
        ]
    answers = [
        (f"<code>{escape(code)}</code>", f"{_inline(answer['description'])}{_shape_of(answer)}")
        for code, answer in sorted(operation["responses"].items())
    ]
    return "".join([*parts, "<h4>Answers</h4>", _table(answers), "</section>"])


def _content(given: tuple[str, Json]) -> str:
    """A body of one media type: its fields if it has any, else its type."""
    media, content = given
    schema = content.get("schema", {})
    fields = _fields(schema)
    return f"<p><code>{escape(media)}</code>: {_type(schema)}</p>{_table(fields) if fields else ''}"


def _shape_of(answer: Json) -> str:
    parts = []
    for media, content in answer.get("content", {}).items():
        of = "" if media == "application/json" else f"<code>{escape(media)}</code> "
        parts.append(f' <span class="soft">{of}{_type(content.get("schema", {}))}</span>')
        if example := content.get("example"):
            parts.append(f"<pre>{escape(example if isinstance(example, str) else json.dumps(example))}</pre>")
    return "".join(parts)


def _shape(name: str, schema: Json) -> str:
    fields = _fields(schema)
    about = (
        f"{_prose(schema.get('description', ''))}{_table(fields) if fields else f'<p>{_type(schema)}</p>'}"
    )
    return f'<section id="{escape(name)}"><h3>{escape(name)}</h3>{about}</section>'


def _fields(schema: Json) -> list[tuple[str, str]]:
    required = schema.get("required", ())
    return [
        (_name(name, name in required), _described(each))
        for name, each in schema.get("properties", {}).items()
    ]


def _name(name: str, required: bool) -> str:
    return f"<code>{escape(name)}</code>" + (' <span class="soft">required</span>' if required else "")


def _described(schema: Json, where: str = "") -> str:
    default = schema.get("default")
    more = [where, f"default {json.dumps(default)}" if default is not None else ""]
    facts = "; ".join([_type(schema), *(escape(each) for each in more if each)])
    about = schema.get("description")
    return f'<span class="soft">{facts}</span>' + (f"<br>{_inline(about)}" if about else "")


def _type(schema: Json) -> str:
    """`list of Sent or NotSent`, with links to schemas."""
    match schema:
        case {"$ref": str(ref)}:
            name = escape(ref.rpartition("/")[2])
            return f'<a href="#{name}">{name}</a>'
        case {"anyOf": list(options)}:
            return " or ".join(map(_type, options))
        case {"enum": list(values)}:
            return "one of " + ", ".join(f"<code>{escape(str(value))}</code>" for value in values)
        case {"type": "array", "items": dict(items)}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"object of {_type(values)}"
        case {"type": str(kind)}:
            limits = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema]
            named = f"{kind} ({schema['format']})" if "format" in schema else kind
            return escape(", ".join([named, *limits]))
        case _:
            return "anything"


_LIMITS = {"minimum": "from", "maximum": "to", "minLength": "at least", "maxLength": "at most"}


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return (
        "<table>" + "".join(f"<tr><td>{left}</td><td>{right}</td></tr>" for left, right in rows) + "</table>"
    )


def _method(method: str) -> str:
    return f'<span class="method {escape(method)}">{escape(method.upper())}</span>'


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text.strip(), maxsplit=1)[0]


def _prose(text: str) -> str:
    """Paragraphs, with the subset of Markdown that the descriptions use."""
    return "".join(f"<p>{_inline(each)}</p>" for each in re.split(r"\n\s*\n", text.strip()) if each)


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
