"""The tokens of a keyword: the same for phrases that seek the same, and different where one word tells them apart."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.workers import LONG
from weighbridge.pipelines.keywords.tokens import INVARIABLE, IRREGULAR, STOP_WORDS, tokens_of

from . import checking
from .checking import check, rows

assigned = st.characters(codec="utf-8", exclude_categories=["Cs", "Cn"])
# Where the rules of folding meet each other.
wordlike = st.text(st.sampled_from("aceghinosuvxyz"), min_size=1, max_size=7)
known = st.sampled_from([*STOP_WORDS, *INVARIABLE, *IRREGULAR, *IRREGULAR.values()])
ends = st.sampled_from(["", "s", "es", "e", "ies", "'s", "’s", "s'", "+", "#", ".", ", 3.5", " !"])
phrases = st.one_of(
    st.text(assigned, max_size=12),
    st.text(st.sampled_from("sS1٣.,+#'’ -é\u0301ſÅﬁ"), max_size=12),
    st.lists(st.tuples(wordlike | known, ends).map("".join), max_size=5).map(" ".join),
)


def tokens(text: str) -> str:
    [found] = tokens_of([text])
    return found


@pytest.mark.parametrize(
    ("keyword", "made"),
    [
        ("shoes for the men", "man shoe"), ("Men's SHOES", "man shoe"), ("mens shoe", "man shoe"),
        ("c++", "c++"), ("c#", "c#"), ("C", "c"), ("+blue +shoes", "blue shoe"), ("#1 shoe", "1 shoe"),
        ("3.5mm jack", "3.5mm jack"), ("1,000 ideas.", "1,000 idea"), ("v1.2.3", "v1.2.3"), ("a.b", "b"),
        ("how to not pay", "how not pay"), ("shoes near me", "near shoe"), ("a vs b", "b vs"),
        ("flights from boston", "boston flight from"), ("to be or not to be", "not or"), ("The The", "the"),
        ("to do", "do to"), ("blue blue blues", "blue"), ("b z é a1", "a1 b z é"),
        ("!!!  ???", "!!! ???"), ("👟 👟", "👟 👟"), ("+ +", "+ +"), ("東京 ホテル", "ホテル 東京"),
        ("naïve cafés", "cafés naïve"),
    ],
)  # fmt: skip
def test_tokens_are_the_distinct_telling_words_in_the_order_of_their_bytes(keyword: str, made: str) -> None:
    assert tokens(keyword) == made


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("shoe", "shoes"), ("horseshoe", "horseshoes"), ("toe", "toes"), ("potato", "potatoes"), ("video", "videos"),
        ("house", "houses"), ("horse", "horses"), ("case", "cases"), ("bus", "buses"), ("bonus", "bonuses"),
        ("dress", "dresses"), ("box", "boxes"), ("axe", "axes"), ("watch", "watches"), ("cache", "caches"),
        ("dish", "dishes"), ("quiz", "quizzes"), ("prize", "prizes"), ("battery", "batteries"), ("movie", "movies"),
        ("pie", "pies"), ("key", "keys"), ("lens", "lenses"), ("gas", "gases"), ("iris", "irises"), ("man", "men"),
        ("woman", "women"), ("child", "children"), ("knife", "knives"), ("mouse", "mice"), ("menu", "menus"),
        ("taxi", "taxis"), ("tv", "tvs"), ("noise", "noises"), ("glove", "gloves"), ("fuse", "fuses"),
    ],
)  # fmt: skip
def test_singular_and_plural_give_the_same_token(singular: str, plural: str) -> None:
    assert tokens(singular) == tokens(plural)


@pytest.mark.parametrize(
    "word",
    ["news", "series", "species", "lens", "gas", "glass", "virus", "tennis", "texas", "café", "größes", "us", "ios",
     "s", "3s", "can", "will", "it"],
)  # fmt: skip
def test_what_is_no_plural_stays_as_it_is(word: str) -> None:
    assert tokens(word) == word


@pytest.mark.parametrize(
    ("one", "other"),
    [("c", "c++"), ("c#", "c++"), ("tea", "tease"), ("lap", "lapse"), ("gift him", "gift her")],
)
def test_words_that_tell_keywords_apart_stay_apart(one: str, other: str) -> None:
    assert tokens(one) != tokens(other)


@settings(max_examples=200 if LONG else 25, deadline=None)
@given(st.lists(phrases, min_size=1, max_size=40))
def test_any_text_has_the_tokens_that_plain_python_gives_it(texts: list[str]) -> None:
    assert tokens_of(texts) == [checking.tokens(text) for text in texts]


@settings(max_examples=200 if LONG else 15, deadline=None)
@given(st.lists(phrases, min_size=1, max_size=40))
def test_the_tokens_of_tokens_are_the_same_and_never_nothing(texts: list[str]) -> None:
    once = tokens_of(texts)
    assert tokens_of(once) == once
    assert all(bool(made) == bool(checking.identity(text)) for text, made in zip(texts, once, strict=True))


def test_every_short_word_is_folded_for_good() -> None:
    """Of the letters that the rules ask for; where one rule leads to another, it shows here."""
    words = ["".join(letters) for size in range(1, 6) for letters in product("aehiosuxz", repeat=size)]
    once = tokens_of(words)
    assert once == [checking.tokens(word) for word in words]
    assert tokens_of(once) == once


def test_of_no_texts_there_are_no_tokens() -> None:
    assert tokens_of([]) == []


def test_the_declared_words_are_in_their_folded_form() -> None:
    stable = [*STOP_WORDS, *INVARIABLE, *IRREGULAR.values()]
    assert [checking.fold(word) for word in stable] == stable


def test_a_file_has_the_tokens_that_tokens_of_gives() -> None:
    keywords = ["Shoes for Men", "c++ vs C#", "👟", "Houses in the USA"]
    outcome = check("\n".join(["Keyword", *keywords]))
    assert [made for (made,) in rows(outcome, "tokens")] == tokens_of(keywords)
