"""Files as people have them."""

from __future__ import annotations

from pathlib import Path

NAMES = (
    "<img src=x onerror=alert(1)>.csv",
    "a" * 296 + ".csv",
    "\u202etxt.elif \u05e7\u05d5\u05d1\u05e5 \u0645\u0644\u0641.csv",
)


def ads(rows: int = 3, *, campaign: str = "Spring", broken: int = 0) -> str:
    """Meta's daily export; the last `broken` rows say no amount."""
    lines = ["Day,Campaign name,Amount spent (USD)"]
    for number in range(rows):
        spent = "see invoice" if number >= rows - broken else f"{number + 1}.50"
        lines.append(
            f"2025-{1 + number // 28 % 12:02}-{1 + number % 28:02},{campaign} {number // 336},{spent}"
        )
    return "\n".join(lines) + "\n"


def keywords(*words: str) -> str:
    return "\n".join(["Keyword,Volume", *(f"{word},{100 + len(word)}" for word in words)]) + "\n"


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path
