"""The pages, their fenced blocks, and the commands and output that they print.

How a page prints commands (CONTRIBUTING.md, "How pages are tested"):

- A block ```sh is run, command after command, after the setup of its page or section: setup/<page>.sh or
  setup/<page>/<anchor of the section>.sh. ```sh no-test is not run; its commands must exist.
- A comment `# → text` after a command, or a block ```text output, is the output of the command before it.
- A block ```python whose first line is `# name.py` is written to that file.
- `…` stands for any text of a line; alone on a line, for any number of lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALL = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]
# Each section begins in a new folder with a new database, because the states that they describe exclude each other.
BY_SECTION = ["docs/files.md", "docs/runbook.md", "docs/storage.md"]
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


@dataclass(frozen=True)
class Part:
    """Commands that run in one shell: of a page, or of one of its sections."""

    page: str
    section: str = ""  # the anchor of its heading

    @property
    def name(self) -> str:
        return f"{self.page}#{self.section}".rstrip("#")

    @property
    def setup(self) -> Path:
        """What runs before the page's commands, in the same shell."""
        return (
            ROOT
            / "tests"
            / "docs"
            / "setup"
            / f"{Path(self.page).stem}{self.section and '/'}{self.section}.sh"
        )

    @property
    def blocks(self) -> list[Block]:
        text = text_of(self.page)
        first, end = sections(text)[self.section] if self.section else (0, sys.maxsize)
        return [block for block in blocks(text) if first <= block.line < end]

    @property
    def commands(self) -> list[Command]:
        return commands(self.blocks)


def parts() -> list[Part]:
    """Everything that is run."""
    found = []
    for page in ALL:
        names = sections(text_of(page)) if page in BY_SECTION else [""]
        found += [Part(page, name) for name in names]
    return [part for part in found if any(block.is_run for block in part.blocks)]


def sections(text: str) -> dict[str, tuple[int, int]]:
    """The lines of each section: of its heading, and of the next one's. By the anchor of the heading."""
    lines = enumerate(text.splitlines(), 1)
    begins = [(slug(line.removeprefix("## ")), number) for number, line in lines if line.startswith("## ")]
    ends = [number for _, number in begins[1:]] + [sys.maxsize]
    return {name: (first, end) for (name, first), end in zip(begins, ends, strict=True)}


def slug(heading: str) -> str:
    """The anchor that GitHub makes from a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w -]", "", plain.lower()).strip().replace(" ", "-")


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(blocks: Iterable[Block]) -> list[Command]:
    """The commands that a reader would run, in order."""
    found: list[Command] = []
    for block in blocks:
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
