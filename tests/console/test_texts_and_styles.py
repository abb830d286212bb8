"""The signs of the states, the direction of foreign text, and a style sheet without unused classes."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from weighbridge.api.delivery.models import DeliveryStatus
from weighbridge.api.projects.models import ProjectStatus
from weighbridge.console import filters, layout

CONSOLE = Path(str(files("weighbridge.console")))
TEMPLATES = {each.name: each.read_text() for each in CONSOLE.joinpath("templates").iterdir()}
PYTHON = "".join(each.read_text() for each in sorted(CONSOLE.rglob("*.py")))


def test_every_state_has_a_sign_that_is_defined_in_one_place() -> None:
    assert set(filters.PROJECTS) == {each.value for each in ProjectStatus}
    assert set(filters.CONVERSIONS) == {each.value for each in DeliveryStatus}
    for table in (filters.JOBS, filters.PROJECTS, filters.CONVERSIONS):
        assert {sign for sign, _ in table.values()} <= {*filters.SIGNS, ""}
    elsewhere = PYTHON.replace(CONSOLE.joinpath("filters.py").read_text(), "") + "".join(TEMPLATES.values())
    assert not [sign for sign in filters.SIGNS.values() if sign in elsewhere.replace("✓ confirmed", "")]


def test_a_sentence_with_a_name_in_it_keeps_its_direction() -> None:
    module = layout._PAGES.get_template("parts.html").module
    said = module.noted_sentence("\u05e7\u05d5\u05d1\u05e5.csv: <b>")  # type: ignore[attr-defined]
    assert "<bdi>\u05e7\u05d5\u05d1\u05e5.csv: &lt;b&gt;</bdi>" in said


def test_the_error_of_a_file_keeps_its_direction() -> None:
    module = layout._PAGES.get_template("upload_parts.html").module
    upload = {"storage_status": "stored", "status": "failed", "on_hold": False, "error_text": "\u05e7: wrong"}
    assert "<bdi>\u05e7: wrong</bdi>" in module.progress_of(upload)  # type: ignore[attr-defined]


def test_messages_for_programs_are_not_shown_to_users() -> None:
    for said, shown in {
        "Rows are wrong. See why: GET /api/uploads/1/rejects, or weighbridge uploads rejects 1.": "Rows are wrong.",
        "There is no such site. POST /api/sites makes one; GET /api/sites shows them.": "There is no such site.",
        "GET /api/sites lists them.": "GET /api/sites lists them.",  # no other text
        "a. b.csv: wrong!  Mend it.": "a. b.csv: wrong! Mend it.",
    }.items():
        assert filters.without_api_calls(said) == shown


def test_the_style_sheet_has_no_unused_class() -> None:
    sheet = CONSOLE.joinpath("static/console.css").read_text()
    sheet = re.sub(r"/\*.*?\*/|\{[^{}]*\}", " ", sheet, flags=re.DOTALL)  # selectors alone
    known = set(re.findall(r"[a-z][a-z-]*", "".join(_classes(text) for text in TEMPLATES.values())))
    known |= {word for word, _ in (*filters.CIRCUITS.values(), *filters.JOBS.values())} | set(filters.SIGNS)
    known |= {f"bin-{name}" for name in re.findall(r'"(\w+)"', PYTHON.split("_BINS = ")[1].split("\n")[0])}
    assert set(re.findall(r"\.([a-z][a-z-]*)", sheet)) - known == set()


def _classes(text: str) -> str:
    """Classes in class attributes, and classes that are passed to macros."""
    found = re.findall(r'class="((?:[^"{]|\{\{.*?\}\}|\{%.*?%\})*)"|kind="([a-z]+)"', text)
    return " ".join(" ".join(each) for each in found) + " "
