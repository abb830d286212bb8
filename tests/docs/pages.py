"""The pages, their fenced blocks, and the commands and output that they print.

How a page prints commands (CONTRIBUTING.md, "How pages are tested"):

- A block ```sh is run, command after command. ```sh no-test is not run; its commands must exist.
- A comment `# → text` after a command, or a block ```text output, is the output of the command before it.
- A block ```python whose first line is `# name.py` is written to that file.
- `…` stands for any text of a line; alone on a line, for any number of lines.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = ["README.md", *(f"docs/start-{name}.md" for name in ("browser", "folders", "application", "operator"))]
ALL = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]
SHOWN = "# → "


@dataclass(frozen=True)
class Block:
    line: int
    info: str
    text: str

    @property
    def is_shell(self) -> bool:
        return self.info.split()[:1] == ["sh"]

    @property
    def is_run(self) -> bool:
        return self.info == "sh"


@dataclass
class Command:
    """One command with the output that the page shows for it; none, if it shows none."""

    line: int
    text: str
    shown: list[str] = field(default_factory=list)


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(text: str) -> Iterator[Block]:
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if opening := re.match(r" *```(.*)", line):
            body = []
            for _, inner in lines:
                if inner.strip() == "```":
                    break
                body.append(inner)
            yield Block(number, opening[1].strip(), textwrap.dedent("\n".join(body)))


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[Command]:
    """The commands that a reader would run, in order."""
    found: list[Command] = []
    for block in blocks(text):
        if block.is_run:
            found += in_block(block)
        elif block.info == "python" and (file := re.match(r"# (\w+\.py)\n", block.text)):
            found.append(Command(block.line, f"cat > {file[1]} <<'END'\n{block.text}\nEND"))
        elif block.info == "text output":
            found[-1].shown += block.text.splitlines()
    return found


def in_block(block: Block) -> list[Command]:
    found: list[Command] = []
    begun: list[str] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if not begun and line.startswith(SHOWN):
            found[-1].shown.append(line.removeprefix(SHOWN))
        elif begun or (line.strip() and not line.startswith("#")):
            begun.append(line)
            if is_whole("\n".join(begun)):
                found.append(Command(number - len(begun) + 1, "\n".join(begun)))
                begun = []
    assert not begun, f"line {block.line}: the last command of the block has no end"
    return found


def is_whole(text: str) -> bool:
    """Does bash take it as a whole command? It only warns about a here-document without an end."""
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    return checked.returncode == 0 and not checked.stderr and not text.endswith("\\")


def matches(shown: list[str], output: str) -> bool:
    """Is the output what the page shows, apart from blank lines and the width of gaps?"""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else _one_line(line) for line in shown if line.strip()
    )
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def _one_line(line: str) -> str:
    parts = " ".join(line.split()).split("…")
    return ".*".join(map(re.escape, parts)) + r"\n"
