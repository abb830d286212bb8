"""When two keywords are the same (identity), and when they are similar (tokens).

    identity   "  Men’s  SHOES "       → "men’s shoes"    NFKC, lower case, one space between words
    tokens     "the shoes for men’s"   → "man shoe"       the set of meaningful words

Both are idempotent: applied to their own result they change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weighbridge.model.rule import Normaliser
from weighbridge.rules.apply_rules import apply_rules

# Stop words after folding: articles, prepositions, conjunctions, auxiliaries, pronouns. Not those that change what is
# searched for (how, best, near, from, not, without, or, vs), nor those that are also other words (can, will, it, us,
# am), nor him and her: searches for gifts differ.
STOP_WORDS = (
    *("a", "an", "the"),
    *("about", "as", "at", "by", "for", "in", "into", "of", "on", "onto", "to", "with"),
    *("and", "but"),
    *("are", "be", "been", "being", "did", "do", "had", "has", "have", "is", "was", "were"),
    *("i", "its", "me", "my", "our", "that", "their", "them", "these", "they", "this", "those"),
    *("we", "you", "your"),
)
# They look like plurals and are not; some have plurals: gases, lenses.
INVARIABLE = (
    *("alias", "atlas", "bias", "canvas", "christmas", "gas", "iris", "lens", "news", "pelvis", "series"),
    *(
        "species",
        "trellis",
        "adidas",
        "angeles",
        "arkansas",
        "dallas",
        "kansas",
        "mercedes",
        "texas",
        "vegas",
    ),
)
# Result of the folding rules → the word that it is a form of.
IRREGULAR = {
    "children": "child", "feet": "foot", "men": "man", "mice": "mouse", "teeth": "tooth", "women": "woman",
    "calve": "calf", "halve": "half", "knive": "knife", "loave": "loaf", "scarve": "scarf", "shelve": "shelf",
    "thieve": "thief", "wive": "wife", "wolve": "wolf",
    "bikinis": "bikini", "emojis": "emoji", "gurus": "guru", "kiwis": "kiwi", "menus": "menu",
    "safaris": "safari", "skis": "ski", "taxis": "taxi",
    "ads": "ad", "cds": "cd", "pcs": "pc", "tvs": "tv",
}  # fmt: skip


def tokens_of(texts: Sequence[str]) -> list[str]:
    """The tokens of each text, computed as for the keywords of a file."""
    return [tokens or "" for tokens in apply_rules(texts, TOKENS)]


def normalised(texts: Sequence[str]) -> list[str]:
    """Each text as the identity of a keyword."""
    return [text or "" for text in apply_rules(texts, (identity,))]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


_SPACE = r"[\s\x{0B}\x{1C}-\x{1F}\x{85}\pZ]+"  # all white space in Unicode
_APOSTROPHE = "[''\u2018\u2019\u02bc`]"  # the first is doubled for the SQL string
_LETTER = r"\p{L}\p{M}\p{N}"
_NUMBER = r"\p{Nd}+(?:[.,]\p{Nd}+)*"  # a point or comma stays between digits: 3.5mm
# A + or # is kept after the first letter (c++ and c# are not c), and removed before it (+blue +shoes).
_TOKEN = f"(?:{_NUMBER}|[{_LETTER}])(?:{_NUMBER}|[{_LETTER}+#])*"

# Singular and plural → one form, mostly the singular. A folded form matches none of the rules.
_FOLDED = rf"""CASE
    WHEN w[-1] NOT IN ('s', 'e', 'z') OR NOT regexp_full_match(w, '[a-z]+') OR w IN ({_listed(INVARIABLE)}) THEN w
    WHEN regexp_matches(w, '^[a-z]{{2,}}ies?$') THEN regexp_replace(w, 'ies?$', 'y')
    WHEN regexp_matches(w, '^(?:{"|".join(INVARIABLE)})es$') THEN w[:-3]
    WHEN regexp_matches(w, '[ao]uses?$|(?:alo|cano|sho|^ho|^to)es?$') THEN rtrim(w, 's')
    WHEN regexp_matches(w, '[a-z](?:ch|sh|ss|us|x|o)es?$') THEN regexp_replace(w, 'es?$', '')
    WHEN regexp_matches(w, '[a-z]zz+(?:es?|s)?$') THEN regexp_replace(w, 'zz+(?:es?|s)?$', 'z')
    WHEN regexp_matches(w, '^[a-z]{{2,}}[^isu]s$') THEN w[:-2]
    ELSE w END"""
_SINGULAR = "MAP {" + ", ".join(f"'{form}': '{word}'" for form, word in IRREGULAR.items()) + "}"

_IDENTITY = f"trim(regexp_replace(nfkc_normalize(lower(nfkc_normalize({{x}}))), '{_SPACE}', ' ', 'g'))"
identity = Normaliser("identity", f"nullif({_IDENTITY}, '')", expected="a keyword", code="missing_value")
_text = Normaliser("text", _IDENTITY)
# Normalised again: two characters may combine after the apostrophe between them is removed.
_EXTRACTED = (
    f"regexp_extract_all(nfkc_normalize(regexp_replace({{x}}, '{_APOSTROPHE}', '', 'g')), '{_TOKEN}')"
)
_words = Normaliser("words", f"coalesce(nullif({_EXTRACTED}, []::VARCHAR[]), [{{x}}])")
_folded = Normaliser("folded", f"[coalesce({_SINGULAR}[f], f) FOR f IN [{_FOLDED} FOR w IN {{x}}]]")
_telling = Normaliser(
    "telling",
    f"coalesce(nullif([w FOR w IN {{x}} IF w NOT IN ({_listed(STOP_WORDS)})], []::VARCHAR[]), {{x}})",
)
_joined = Normaliser("joined", "array_to_string(list_sort(list_distinct({x})), ' ')")
TOKENS = (_text, _words, _folded, _telling, _joined)
