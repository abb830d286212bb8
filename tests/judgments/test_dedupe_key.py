"""The key by which a plaintiff is known again: what DuckDB makes is what the seed's Python makes."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rules.checking import check_text

from tests.proof.workers import LONG
from weighbridge.formats.scan import visible
from weighbridge.model.sheet import SPACE
from weighbridge.pipelines.judgments import pipeline

Person = tuple[str, str | None, str | None]  # name, e-mail, phone


def generate_dedupe_key(name: str, email: str | None, phone: str | None) -> str:
    """As the specification of the judgments prints it."""
    normalized_name = re.sub(r"[^a-z0-9]", "", name.lower())
    if email:
        return f"email:{email.lower().strip()}"
    if phone:
        digits = re.sub(r"\D", "", phone)[-10:]
        return f"phone:{digits}"
    return f"name:{hashlib.md5(normalized_name.encode()).hexdigest()[:16]}"


def keys(*people: Person) -> list[str | None]:
    """What the pipeline makes of them: a case each, in one file."""
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerow(["case_number", "plaintiff_name", "plaintiff_email", "plaintiff_phone", "defendant_name"])
    writer.writerows(
        [number, name, email or "", phone or "", "Roe"] for number, (name, email, phone) in enumerate(people)
    )
    outcome = check_text(file.getvalue(), None, pipeline=pipeline)
    assert outcome.rejections == []
    by_id = {row["id"]: row["dedupe_key"] for row in outcome.rows["plaintiff"]}
    cases = {int(row["case_number"]): by_id.get(row["plaintiff_id"]) for row in outcome.rows["judgment"]}
    return [cases[number] for number in range(len(people))]


def expected(name: str, email: str | None, phone: str | None) -> str | None:
    """The specification, but for a person of whom nothing is known: all of those would be one."""
    nobody = not email and not phone and not re.search("[a-z0-9]", name.lower())
    return None if nobody else generate_dedupe_key(name, email, phone)


# Characters that are newer than this Python's Unicode may well be older than DuckDB's.
LETTERS = st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="\0")
IN_ADDRESSES = st.characters(exclude_categories=["Cs", "Cn", "Cc", "Z"], exclude_characters="@Σ" + SPACE)
DIGITS = st.characters(categories=["Nd"])
SPACES = st.text(st.sampled_from([c for c in map(chr, range(0x3001)) if c.isspace()]), max_size=3)
BETWEEN = st.text(st.sampled_from("()-. +/x\u00a0"), max_size=3)

names = st.one_of(
    st.text(LETTERS, max_size=30),
    st.sampled_from(["ACME, Inc.", "Acme Inc", "O’Brien", "İlker", "K&R ẞ", "José  Núñez", "Ⅷ", "李", "..."]),
).filter(lambda name: name.strip(SPACE) not in pipeline.nulls)
emails = st.builds(
    "{}{}@{}.{}{}".format,
    SPACES,
    st.text(IN_ADDRESSES, min_size=1, max_size=12),
    st.text(IN_ADDRESSES, min_size=1, max_size=8),
    st.sampled_from(["com", "COM", "Org", "İO"]),
    SPACES,
)
phones = st.lists(st.tuples(BETWEEN, DIGITS), min_size=7, max_size=15).map(
    lambda parts: "".join(between + digit for between, digit in parts)
)
people = st.tuples(names, st.none() | emails, st.none() | phones)


@settings(max_examples=300 if LONG else 25, deadline=None)
@given(st.lists(people, min_size=1, max_size=20))
def test_the_key_is_the_one_of_the_specification(crowd: list[Person]) -> None:
    assert keys(*crowd) == [expected(*person) for person in crowd]


def test_every_character_of_names_and_addresses_counts_as_python_counts_it() -> None:
    """Some lower() makes more of a character than another: İ, ẞ, the sign for Kelvin."""
    known = [c for c in map(chr, range(1, sys.maxunicode + 1)) if unicodedata.category(c) not in ("Cs", "Cn")]
    known = [c for c in known if visible(c.encode())[1] == 0]  # the others are removed from every cell
    in_addresses = [c for c in known if not c.isspace() and c not in "@Σ" + SPACE]
    crowd: list[Person] = [("x".join(known[i : i + 400]), None, None) for i in range(0, len(known), 400)]
    crowd += [
        ("", f"x{''.join(in_addresses[i : i + 400])}x@example.com", None)
        for i in range(0, len(in_addresses), 400)
    ]
    assert keys(*crowd) == [expected(*person) for person in crowd]


@pytest.mark.parametrize("name", ["", "...", "李小龍", "Σ", "-", "N/A"])
def test_a_name_of_which_nothing_is_left_makes_no_key(name: str) -> None:
    """On purpose: the seed's hash of nothing would make one person of everyone without a Latin name."""
    assert keys((name, None, None), (name, None, "212 555 0100")) == [None, "phone:2125550100"]


def test_a_capital_sigma_at_the_end_is_no_final_one() -> None:
    """A difference that stays: only Python's lower() looks at the letters around. Few write so to Greece."""
    assert keys(("", "ΝΙΚΟΣ@example.gr", None)) == ["email:νικοσ@example.gr"]
    assert generate_dedupe_key("", "ΝΙΚΟΣ@example.gr", None) == "email:νικος@example.gr"


@pytest.mark.parametrize("unseen", ["\ufeff", "\u200b"])
def test_characters_without_width_around_an_address_are_no_part_of_it(unseen: str) -> None:
    """Every cell loses them; the seed's strip() would make another person of them."""
    assert keys(("", f"{unseen}jane@example.com{unseen}", None)) == ["email:jane@example.com"]


def test_empty_cells_are_no_address_and_no_number() -> None:
    by_name = generate_dedupe_key("Jane Roe", None, None)
    assert keys(("Jane Roe", "", ""), ("Jane Roe", " ", "-"), ("Jane Roe", "N/A", "none")) == [by_name] * 3
