"""Objects and lists in the values of a JSON file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.checking import Outcome, check_text
from weighbridge.pipelines import judgments


def check(*records: dict[str, Any], lines: bool = True) -> Outcome:
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    return check_text(text, None, pipeline=judgments.pipeline, kind="json")


def case(number: str, **more: Any) -> dict[str, Any]:
    return {
        "Case Number": number,
        "Plaintiff": "Ann",
        "Defendant": "Bob",
        "Amount": 5,
        "Filing Date": "2025-01-02",
        **more,
    }


@pytest.mark.parametrize("lines", [True, False])
def test_an_object_in_a_text_field_is_stored_as_json_and_reported(lines: bool) -> None:
    outcome = check(case("24-1"), case("24-2", Plaintiff={"name": "Z"}, Defendant=["A", "B"]), lines=lines)
    assert outcome.rows["judgment"][1]["plaintiff_name"] == '{"name": "Z"}'
    warning = outcome.warnings["nested_values"]
    assert "'Plaintiff', 'Defendant'" in warning
    assert f"first on line {2 if lines else 1}" in warning
    assert "Z" not in warning


def test_an_object_in_another_field_rejects_its_record_and_one_in_no_field_is_only_unused() -> None:
    outcome = check(
        case("24-1", Amount={"value": 5}), case("24-2", Parties=["A", "B"]), case("24-3", Court=True)
    )
    assert outcome.codes == ["bad_amount"]
    assert outcome.warnings.keys() == {"unused_columns"}
