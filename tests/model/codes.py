"""The codes that users can meet, collected from the source; `test_states_page.py` compares them with the documentation.

A code is a string at a place where the source names one: an argument of the calls below, an `error_code` in SQL. In
`formats` and `rules`, where codes are written in many ways, every string of two or more words in snake_case counts,
unless it is listed in NO_CODES.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from weighbridge.delivery.providers import google_datamanager, google_errors
from weighbridge.model.retry import POLICIES

SOURCE = Path(__file__).parents[2] / "src" / "weighbridge"

# Which argument of a call is the code, unless it is given as code=….
PLACES = {
    "Refused": 0, "FileRefused": 0, "RequestRefused": 1, "Refusal": 1, "AccessRefused": 0, "problem": 1,
    "Rejection": 4, "RowFault": 0, "Discard": 0, "queue.UploadResult": 2, "_fail": 2, "warn": 3,
    "FieldError": 2, "Reason": 1, "Validator": 2, "Normaliser": 4,
    "Outcome.failed": 0, "Outcome.retry": 0, "ProviderTransientError": 1, "ProviderRateLimitError": 1,
}  # fmt: skip

# Strings of `formats` and `rules` that are no codes: columns, functions and options of DuckDB, names of encodings.
NO_CODES = {
    "all_cells", "arrow_lossless_conversion", "as_utf8", "breakdown_parts", "client_id", "codec_of",
    "codec_of_head", "column_name", "currency_code", "decode_head", "disabled_optimizers", "euc_jp", "euc_kr",
    "fold_header", "fold_space", "has_more", "in_full", "keep_known_values", "made_here", "memory_limit",
    "natural_key_hash", "next_cursor", "next_page", "next_page_token", "nfkc_normalize", "not_in_future",
    "open_sheet", "original_row", "original_upload", "platform_id", "project_id", "record_links",
    "rejected_keys", "rejected_links", "rejected_repeats", "row_index", "records_or_cell", "temp_directory",
    "text_of", "unclear_keys", "upload_id", "utf16_of", "without_added_columns", "workspace_id", "zh_cn",
    "zh_tw",
}  # fmt: skip

_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
_CODE = re.compile(r"[a-z][a-z0-9_]+|[A-Z][A-Z0-9_]+|.*….*")
_IN_SQL = re.compile(r"'([a-z][a-z0-9]*(?:_[a-z0-9]+)+)'")
# In functions.sql: a string of several words in capitals, and any string in a line that sets or names a code.
_CAPITALS = re.compile(r"'([A-Z]+(?:_[A-Z]+)+)'")
_SETS_A_CODE = re.compile(r"error_code\s*(=|IN)|\bTHEN 'batch_|'duplicate_(?!of)|l\.refusal")
_STATES = {
    "HALF_OPEN", "RATE_LIMIT", "QUEUED", "FAILED", "VALIDATION", "pending", "failed", "stored", "retry_failed",
}  # fmt: skip


def collect() -> dict[str, set[str]]:
    """Each code with the files that name it. A code with a part that is not fixed has `…` there."""
    found: dict[str, set[str]] = {}
    for file, code in _all():
        found.setdefault(code, set()).add(str(file.relative_to(SOURCE)))
    return found


def _all() -> Iterator[tuple[Path, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        if file.is_relative_to(SOURCE / "testing"):
            continue
        tree = ast.parse(file.read_text())
        yield from ((file, code) for code in (*_in_calls(tree), *_of_subclass(tree)))
        if file == SOURCE / "postgres" / "errors.py":
            yield from ((file, code) for code in _returned(tree))
        if file.parent.name in ("formats", "rules") or file.name == "sheet.py":
            yield from ((file, code) for code in _in_snake_case(tree))
    for file in sorted(SOURCE.rglob("functions.sql")):
        yield from ((file, code) for code in _in_functions(file.read_text()))
    retries = SOURCE / "model" / "retry.py"
    yield from ((retries, kind) for kind in POLICIES)
    errors = SOURCE / "delivery" / "providers" / "google_errors.py"
    yield from ((errors, code) for code in (*google_errors.CONVERSION_UPLOAD, *google_errors._CODES))
    yield from ((errors, code) for code in google_errors._SENTENCES)
    manager = SOURCE / "delivery" / "providers" / "google_datamanager.py"
    for codes in (google_datamanager._OF_ALL, google_datamanager._AUTH, google_datamanager._DELIVERED):
        yield from ((manager, code) for code in codes)


def _in_calls(tree: ast.AST) -> Iterator[str]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and (place := _place(call)) is not None:
            named = [each.value for each in call.keywords if each.arg == "code"]
            for argument in named or call.args[place : place + 1]:
                yield from (code for code in _texts(argument) if _CODE.fullmatch(code))


def _place(call: ast.Call) -> int | None:
    name = ast.unparse(call.func)
    return PLACES.get(name, PLACES.get(name.rpartition(".")[2]))


def _of_subclass(tree: ast.AST) -> Iterator[str]:
    """Exceptions that have their code built in: `super().__init__(409, "code", …)`."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
            texts = [text for each in call.args[:2] for text in _texts(each)]
            yield from [text for text in texts if _CODE.fullmatch(text)][:1]


def _returned(tree: ast.AST) -> Iterator[str]:
    """`return "code", sentence`."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Return) and isinstance(each.value, ast.Tuple) and len(each.value.elts) == 2:
            yield from (text for text in _texts(each.value.elts[0]) if _SNAKE.fullmatch(text))


def _texts(node: ast.expr) -> Iterator[str]:
    """The strings that an expression may be: `"a"`, `f"a_{b}"`, `"a" if b else "c"`, `a or "b"`."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in parts)
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))
        case ast.BoolOp(values=values):
            for each in values:
                yield from _texts(each)


def _in_snake_case(tree: ast.AST) -> Iterator[str]:
    notes = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
            codes = {node.value} if _SNAKE.fullmatch(node.value) else set(_IN_SQL.findall(node.value))
            yield from codes - NO_CODES
        if isinstance(node, ast.JoinedStr):
            yield from (text for text in _texts(node) if re.fullmatch(r"…_[a-z_]+", text))


def _in_functions(sql: str) -> Iterator[str]:
    found = set(_CAPITALS.findall(sql))
    for line in re.sub(r"--.*", "", sql).splitlines():
        if _SETS_A_CODE.search(line):
            found |= set(re.findall(r"'([A-Za-z_]+)'", line))
    yield from (f"{code}…" if code.endswith("_") else code for code in found - _STATES)
