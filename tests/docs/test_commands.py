"""Every `weighbridge …` in a shell block of any page is a command with these options; nothing runs here.

test_run.py runs the blocks ```sh. The blocks ```sh no-test must have a reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache

import click
import pytest

from weighbridge.cli.root import command

from .pages import ALL, blocks, text_of

# Commands that test_run.py could run, were it not for …
TESTABLE = re.compile(r"(?:^|[\s(/;])(?:weighbridge(?! listens)|curl|psql|python3?)\s")
REASONS = {
    "systemctl": "needs systemd",
    "docker": "needs Docker",
    "/opt/": "is installed on the reader's machine",
    "https://": "is sent to a server of the reader's or to another company",
}


def lines(text: str) -> Iterator[list[str]]:
    """The words of each command, up to a pipe, a redirection or a comment."""
    for block in blocks(text):
        if block.is_shell:
            whole = re.sub(r"\\\n\s*", " ", block.text)
            for found in re.findall(
                r"(?:^|[\s(/;])weighbridge ((?!listens)[^\n)]*)", _without_comments(whole)
            ):
                yield list(_words(found))


def _without_comments(text: str) -> str:
    return re.sub(r"(?:^|\s)#.*$", "", text, flags=re.MULTILINE)


def _words(text: str) -> Iterator[str]:
    parts = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    parts.whitespace_split = True
    parts.commenters = ""
    for word in parts:
        if set(word) <= set("|&;<>"):
            return
        yield word


root = cache(command)


def wrong(words: list[str]) -> str:
    """Why the command line does not take them; empty if it does."""
    found = root()
    rest = list(words)
    while isinstance(found, click.Group) or hasattr(found, "commands"):
        if not rest or rest[0].startswith("-"):
            return "" if rest[:1] in (["--version"], ["--help"]) else "no command"
        if rest[0] not in found.commands:
            return f"unknown command {rest[0]}"
        found = found.commands[rest.pop(0)]
    names = {name: option for option in found.params for name in (*option.opts, *option.secondary_opts)}
    given = iter(rest)
    for word in given:
        if word.startswith("-") and word not in ("-", "--help", "-h"):
            name, equals, _ = word.partition("=")
            if name not in names:
                return f"unknown option {name}"
            if not names[name].is_flag and not equals and next(given, None) is None:
                return f"{name} has no value"
    return ""


@pytest.mark.parametrize("page", ALL)
def test_every_command_exists_with_its_options(page: str) -> None:
    assert [(words, why) for words in lines(text_of(page)) if (why := wrong(words))] == []


def untested(text: str) -> list[str]:
    """The lines of blocks that are not run, without a reason for it."""
    whole = [
        re.sub(r"\\\n\s*", " ", block.text)
        for block in blocks(text)
        if block.info in ("bash", "shell", "console") or (block.is_shell and not block.is_run)
    ]
    found = [line for each in whole for line in each.splitlines()]
    return [line for line in found if TESTABLE.search(line) and not any(word in line for word in REASONS)]


@pytest.mark.parametrize("page", ALL)
def test_no_command_is_left_out_of_the_tests_without_a_reason(page: str) -> None:
    assert untested(text_of(page)) == []


def test_a_command_without_a_reason_would_be_found() -> None:
    text = "```sh no-test\nmake install\ncurl \\\n  https://example.com\nA=1 weighbridge load a\n```\n"
    text += "```bash\npsql -l\n```"
    assert untested(text) == ["A=1 weighbridge load a", "psql -l"]


@pytest.mark.parametrize(
    "line", ["laod a.csv", "load a.csv --platfrom meta", "uploads sow ID", "load a.csv --batch"]
)
def test_a_wrong_command_would_be_found(line: str) -> None:
    (words,) = lines(f"```sh\nA=1 weighbridge {line} > out 2>&1   # a comment\n```")
    assert wrong(words)


def test_commands_are_seen_wherever_they_stand() -> None:
    text = "```sh no-test\nX=$(weighbridge vault key)\nif .venv/bin/weighbridge doctor | cat; then a; fi\n```"
    assert list(lines(text)) == [["vault", "key"], ["doctor"]]
    assert sum(len(list(lines(text_of(page)))) for page in ALL) > 100
