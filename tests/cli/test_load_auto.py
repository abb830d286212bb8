"""`weighbridge load --pipeline auto`: files of several kinds in one go, each known by its header."""

from __future__ import annotations

from pathlib import Path

import pytest

from weighbridge.testing.exports import ExportSpec, write_export, write_judgments

from .conftest import Command


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    write_export(tmp_path / "google.csv", ExportSpec("google", days=2))
    write_judgments(tmp_path / "court.csv", rows=5, family="court")
    (tmp_path / "words.csv").write_text("Keyword,Volume\nshoes,1\n")
    (tmp_path / "strange.csv").write_text("a,b\n1,2\n")
    return [tmp_path / name for name in ("google.csv", "court.csv", "words.csv", "strange.csv")]


def test_each_file_is_loaded_by_the_pipeline_of_its_header(main: Command, files: list[Path]) -> None:
    loaded = main("load", *files, "--pipeline", "auto", "--json")
    assert loaded.code == 1
    told = loaded.json
    assert "daily_metrics_upserted" in told[0]
    assert told[1]["judgments_upserted"] == 5
    assert told[2]["error"] == "invalid_project"
    assert told[3]["error"] == "unrecognised_file"
    assert "strange.csv: file ('strange.csv'): it fits no pipeline" in loaded.err


def test_people_get_a_table_for_each_pipeline(main: Command, files: list[Path]) -> None:
    loaded = main("load", *files[:3], "--pipeline", "auto", "--project", "7")
    assert loaded.code == 0, loaded.err
    lines = [line.strip() for line in loaded.out.splitlines()]
    assert [line for line in lines if line in ("ads:", "judgments:", "keywords:")] == [
        "ads:",
        "judgments:",
        "keywords:",
    ]
    assert "Show the groups: weighbridge projects show 7" in loaded.out
