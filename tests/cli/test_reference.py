"""docs/cli.md is what the commands say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weighbridge.cli import reference
from weighbridge.cli.root import command

from .test_help import EVERY

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
ROOT: Any = command()
COMMANDS = [" ".join(path) for path, found in EVERY.items() if not hasattr(found, "commands")]


def test_the_page_is_what_the_commands_say() -> None:
    assert reference.page() == PAGE, "make cli-docs"


def test_every_command_has_one_subject() -> None:
    named = [name for names in reference.SUBJECTS.values() for name in names]
    assert sorted(named) == sorted(ROOT.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_all_its_options(name: str) -> None:
    section = PAGE.partition(f"### weighbridge {name}\n")[2].partition("\n#")[0]
    for each in EVERY[tuple(name.split())].params:
        shown = each.opts if each.param_type_name == "option" else [each.metavar]
        assert all(f"`{option}" in section for option in shown)


def test_flags_are_shown_as_flags_and_other_options_with_their_value() -> None:
    load = PAGE.partition("### weighbridge load\n")[2].partition("\n#")[0]
    assert "| `--force` |" in load
    assert "| `--batch NAME` |" in load
    assert "| `--parse`, `--no-parse` |" in PAGE


def test_the_page_explains_exit_codes_and_json_first() -> None:
    assert PAGE.index("## Exit codes") < PAGE.index("## JSON") < PAGE.index("### weighbridge ")
