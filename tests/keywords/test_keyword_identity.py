"""Which keywords are one: spellings that differ in case, width, form or space, and nothing else."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.pipelines.keywords import tokens
from weighbridge.rules.apply_rules import apply_rules

from . import checking
from .checking import check, rows

ASSIGNED = [c for c in map(chr, range(1, sys.maxunicode + 1)) if unicodedata.category(c) not in ("Cn", "Cs")]
texts = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cn"]), max_size=20)
    | st.text(st.sampled_from("aAÅå\u030aΣσςİiıﬁＡ½Hh\u0331 \t\u00a0\u3000\u2028\x1f\x85¨"), max_size=12),
    min_size=1,
    max_size=40,
)


def identities(keywords: list[str]) -> list[str]:
    return [made or "" for made in apply_rules(keywords, [tokens.identity])]


@pytest.mark.parametrize(
    "spelling",
    ["Blue Shoes", " blue\u00a0shoes ", "BLUE  SHOES", "ｂｌｕｅ\u3000shoes", "blue\tshoes", "𝐛𝐥𝐮𝐞 shoes"],
)
def test_spellings_of_one_keyword_are_one_row(spelling: str) -> None:
    outcome = check(f'Keyword\nblue shoes\n"{spelling}"\n')
    assert rows(outcome, "keyword_normalized", "tokens") == [("blue shoes", "blue shoe")]
    assert outcome.bins.duplicate == 1


@pytest.mark.parametrize("other", ["blue shoe", "blueshoes", "blue-shoes", "blue shoes!", "bluè shoes"])
def test_other_words_and_other_signs_are_other_keywords(other: str) -> None:
    assert check(f"Keyword\nblue shoes\n{other}\n").bins.accepted == 2


def test_letters_that_are_one_character_only_in_lower_case_are_one() -> None:
    assert identities(["H\u0331", "h\u0331", "\u1e96"]) == ["\u1e96"] * 3


def test_the_keyword_itself_keeps_its_case_and_signs() -> None:
    outcome = check("Keyword\n  Men’s  “Ｂｌｕｅ” SHOES\nCafe\u0301\n")
    assert rows(outcome, "keyword", "keyword_normalized") == [
        ("Men’s “Blue” SHOES", "men’s “blue” shoes"),
        ("Caf\u00e9", "caf\u00e9"),
    ]


@settings(max_examples=60, deadline=None)
@given(texts)
def test_any_text_is_normalised_as_plain_python_does(keywords: list[str]) -> None:
    assert identities(keywords) == [checking.identity(keyword) for keyword in keywords]


@settings(max_examples=40, deadline=None)
@given(texts)
def test_to_normalise_twice_changes_nothing(keywords: list[str]) -> None:
    once = identities(keywords)
    assert identities(once) == once


def test_every_character_of_unicode_is_normalised_for_good() -> None:
    once = identities([f"a{c}B" for c in ASSIGNED])
    assert once == [checking.identity(f"a{c}B") for c in ASSIGNED]
    assert identities(once) == once
