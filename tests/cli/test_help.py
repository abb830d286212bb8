"""Help of every command: flags are flags, and every option says what it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from weighbridge.cli.root import HELP, command


def commands(found: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, found
    for name, each in found.commands.items() if isinstance(found, TyperGroup) else ():
        yield from commands(each, *path, name)


EVERY = dict(commands(command()))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_no_flag_looks_as_if_it_took_a_value(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command()([*path, "--help"], prog_name="weighbridge")
    assert ended.value.code in (0, None)
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "<" not in shown.replace(
        "<=", ""
    )  # the name of a Python type, as Typer prints it without a metavar


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_option_has_a_sentence_of_help(path: tuple[str, ...]) -> None:
    assert EVERY[path].help or not path
    silent = [each.name for each in EVERY[path].params if not each.help]
    assert silent == []


def test_both_names_of_help_work(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for name in HELP:
        with pytest.raises(SystemExit):
            command()(["load", name], prog_name="weighbridge")
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
