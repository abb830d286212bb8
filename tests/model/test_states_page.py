"""docs/states.md lists every state and every code that a user can meet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weighbridge.model.states import Status

from .codes import PLACES, SOURCE, collect

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "states.md").read_text()
NAMED = set(re.findall(r"`([A-Za-z0-9_…]+)`", PAGE))
# The codes that refuse a file are in files.md.
NAMED_FOR_FILES = set(re.findall(r"`([a-z0-9_]+)`", (DOCS / "files.md").read_text()))
SCHEMA = (SOURCE / "postgres" / "migrations" / "0001_initial.sql").read_text()


@pytest.fixture(scope="module")
def codes() -> dict[str, set[str]]:
    """Not collected when the module is imported: every test process imports it."""
    return collect()


def test_every_code_of_the_source_is_documented(codes: dict[str, set[str]]) -> None:
    assert len(codes) > 200
    assert {code: files for code, files in codes.items() if code not in NAMED | NAMED_FOR_FILES} == {}


def test_the_page_names_no_code_that_the_source_does_not_have() -> None:
    source = {
        word
        for kind in ("*.py", "*.sql")
        for file in SOURCE.rglob(kind)
        if "testing" not in file.parts
        for word in re.findall(r"\w+", file.read_text())
    }
    tables = [line for line in PAGE.splitlines() if line.startswith("|")]
    named = {code for line in tables for code in re.findall(r"`([A-Za-z0-9]+(?:_[A-Za-z0-9]+)+)`", line)}
    made = {"duplicate_completed", "duplicate_processing", "duplicate_pending", "campaign_check_violation"}
    made |= {"invalid_workspace", "unknown_source"}  # invalid_… and unknown_…, with the name of a field
    assert {
        code for code in named - made if not code.startswith("WEIGHBRIDGE_") and code not in source
    } == set()


@pytest.mark.parametrize(
    ("code", "file"),
    [
        ("too_many_invalid_rows", "uploads/threshold.py"),  # Refused
        ("bad_encoding", "formats/encoding_messages.py"),  # FileRefused
        ("not_held", "uploads/preview.py"),  # RequestRefused
        ("STORAGE_QUOTA_EXCEEDED", "model/errors.py"),  # a subclass with its own code
        ("CUT", "delivery/providers/answers.py"),  # ProviderTransientError
        ("HELD_BACK", "delivery/provider_call.py"),  # Outcome.retry
        ("worker_crashed", "uploads/functions.sql"),
        ("late_key", "rules/rejection_messages.py"),  # in SQL inside Python
        ("…_column_not_found", "rules/column_report.py"),
        ("unique_violation", "postgres/errors.py"),
    ],
)
def test_codes_are_found_wherever_they_are_written(code: str, file: str, codes: dict[str, set[str]]) -> None:
    assert file in codes[code]


def test_every_kind_of_call_that_is_searched_exists() -> None:
    source = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    assert [name for name in PLACES if f"{name}(" not in source] == []


@pytest.mark.parametrize(
    ("heading", "column"),
    [
        ("Stored files that wait", "storage_status IN"),
        ("Deliveries", "status IN ('QUEUED'"),
        ("Circuit breaker", "state IN ('CLOSED'"),
        ("Confirmations", "state IN ('AWAITED'"),
    ],
)
def test_every_state_of_the_schema_is_in_its_section(heading: str, column: str) -> None:
    declared = SCHEMA[SCHEMA.index(column) :].partition(")")[0]
    states = set(re.findall(r"'(\w+)'", declared))
    assert len(states) > 2
    assert {state for state in states if f"`{state}`" not in section(heading)} == set()


@pytest.mark.parametrize("heading", ["Uploads", "Jobs of a project", "Import runs"])
def test_every_state_of_an_upload_is_in_its_section(heading: str) -> None:
    assert {state.value for state in Status if f"`{state.value}`" not in section(heading)} == set()


def section(heading: str) -> str:
    return PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
