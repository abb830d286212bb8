"""Files of every pipeline, by chance: a first one, and others that say some of it again and some of it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.engine.conftest import HEADER, meta_line

Maker = Callable[[Random], bytes]


def ads(chance: Random) -> bytes:
    """Some days are the same in every file, so that their receipts are known; figures may be missing."""
    lines = [meta_line(f"2026-01-{day:02}", ad) for day in (1, 2) for ad in range(6)]
    for day in range(3, 8):
        for ad in range(6):
            if chance.random() < 0.7:
                spend = chance.choice(["1.50", "1.5", "2.25", ""])
                impressions = chance.choice([100, 100, 101, ""])
                lines.append(meta_line(f"2026-01-{day:02}", ad, impressions=impressions, spend=spend))
    lines = [
        line.replace("Campaign 0", chance.choice(["Campaign 0", "Renamed"])) for line in lines[:1]
    ] + lines[1:]
    lines += chance.sample(lines, 3)  # duplicates
    if chance.random() < 0.8:
        lines.append(meta_line("2026-01-09", 1, impressions="many"))
    chance.shuffle(lines)
    return "\n".join([HEADER, *lines, ""]).encode()


def campaigns(chance: Random) -> bytes:
    """An export without ad sets and ads: parts of the key are empty."""
    lines = [
        f"2026-02-{day:02},Campaign {n},1202000000{n},{chance.choice([10, 20])},{chance.choice(['', 5])}"
        for day in range(1, 6)
        for n in range(5)
        if chance.random() < 0.8
    ]
    return "\n".join(["Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)", *lines, ""]).encode()


def judgments(chance: Random) -> bytes:
    lines = []
    for n in range(40):
        if chance.random() < 0.7:
            plaintiff = chance.choice(["Acme Bank", "Acme bank", "First Credit", ""])
            amount = chance.choice(["1,000.00", "1000", "250.50", ""])
            court = chance.choice(["North", "South", ""])
            lines.append(f'C-{n},{plaintiff},Somebody {n},"{amount}",2025-01-02,{court}')
    lines.append("none,Acme Bank,Nobody,1,2025-01-02,North")
    return "\n".join(["Case Number,Plaintiff,Defendant,Amount,Filing Date,Court", *lines, ""]).encode()


def keywords(chance: Random) -> bytes:
    lines = []
    for n in range(60):
        if chance.random() < 0.7:
            word = chance.choice([f"Red Shoe {n}", f"red shoe {n}"])
            lines.append(f"{word},{chance.choice([10, 20, 30, ''])},{chance.choice(['1.5', '2.5', ''])}")
    return "\n".join(["Keyword,Volume,CPC", *lines, ""]).encode()


def conversions(chance: Random) -> bytes:
    lines = []
    for n in range(40):
        if chance.random() < 0.7:
            value = chance.choice(["10.00,EUR", "12.50,EUR", ","])
            lines.append(f"order-{n},2026-01-{1 + n % 20:02}T10:00:00Z,{value},click{n}")
    return "\n".join(
        ["Order ID,Conversion Time,Conversion Value,Conversion Currency,GCLID", *lines, ""]
    ).encode()


MAKERS: dict[str, tuple[Maker, dict[str, object]]] = {
    "ads": (ads, {"platform": "meta"}),
    "campaigns": (campaigns, {"platform": "meta"}),
    "judgments": (judgments, {"pipeline": "judgments", "platform": None}),
    "keywords": (keywords, {"pipeline": "keywords", "platform": None, "project_id": 7}),
    "conversions": (conversions, {"pipeline": "conversions", "platform": None}),
}
