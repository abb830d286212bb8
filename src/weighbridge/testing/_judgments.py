"""Judgments as courts and their vendors export them: invented people, dollars, and dates with the month first."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Literal

Family = Literal["vendor", "court"]

_VENDOR = (
    "case_number", "plaintiff_name", "plaintiff_email", "plaintiff_phone", "defendant_name", "judgment_amount",
    "filing_date", "county",
)  # fmt: skip
_COLUMNS: dict[Family, dict[str, str]] = {  # header → cell
    "vendor": {name: name for name in _VENDOR},
    "court": {
        "File #": "case_number",
        "Plaintiff": "plaintiff_name",
        "Defendant": "defendant_name",
        "Amount": "judgment_amount",
        "Entry Date": "filing_date",
        "Court": "court",
        "County": "county",
    },
}
_FIRST = ("Ada", "Ben", "Chloë", "Dmitri", "Eve", "Femi", "Grace", "Håkon", "Inés", "Jun")
_LAST = ("Abbott", "Brooks", "Castillo", "Dubois", "Eriksen", "Fischer", "Grant", "Haddad", "Ito", "O’Neill")
_COUNTIES = ("Kings", "Queens", "Bronx", "Richmond", "New York")


@dataclass(frozen=True)
class WrittenJudgments:
    """The content of a generated file, as counts."""

    path: Path
    rows: int
    plaintiffs: int  # different ones, with any spelling


def write_judgments(path: Path, rows: int, family: Family = "vendor", seed: int = 1) -> WrittenJudgments:
    """One case per row; some plaintiffs have several cases and several spellings."""
    chance = random.Random(seed)
    seen = set()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS[family])
        for number in range(rows):
            who = chance.randrange(max(1, rows // 2))
            seen.add(who)
            filed = date(2024, 1, 1) + timedelta(days=chance.randrange(700))
            cells = {
                "case_number": f"CV-{filed.year}-{number:06}",
                "plaintiff_name": _spelt(f"{_FIRST[who % 10]} {_LAST[who // 10 % 10]} {who:05}", chance),
                "plaintiff_email": _spelt(f"plaintiff.{who}@example.com", chance),
                "plaintiff_phone": f"({200 + who % 800}) 555-{chance.randrange(10_000):04}",
                "defendant_name": f"{chance.choice(_FIRST)} {chance.choice(_LAST)}",
                "judgment_amount": f"${chance.randrange(10_000, 5_000_000) / 100:,.2f}",
                "filing_date": f"{filed.month}/{filed.day}/{filed.year}",
                "court": "Civil Court",
                "county": chance.choice(_COUNTIES),
            }
            writer.writerow(cells[name] for name in _COLUMNS[family].values())
    return WrittenJudgments(path, rows, len(seen))


def _spelt(text: str, chance: random.Random) -> str:
    return chance.choice((text, text.upper(), text.lower(), f" {text}"))
