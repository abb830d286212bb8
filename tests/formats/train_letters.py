"""Writes formats/letter_statistics.txt: `pip install babel faker && python -m tests.formats.train_letters`.

The words are those of the Unicode CLDR (names of languages, countries, currencies and cities in each language, through
Babel), the names and places of Faker, and a few everyday words from EVERYDAY below. Neither package is one of ours: the
statistics change only when a language is added.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[2] / "src/weighbridge/formats/letter_statistics.txt"
ASCII = "abcdefghijklmnopqrstuvwxyz"
EVERYDAY = Path(__file__).with_name("everyday_words.txt")

# Language → its non-ASCII letters. The letters of the other alphabets are taken from the words.
OWN = {
    "en": "",
    "de": "äöüß",
    "fr": "àâæçèéêëîïôœùûüÿ",
    "es": "áéíñóúü",
    "pt": "àáâãçéêíóôõúü",
    "it": "àèéìíòóù",
    "nl": "àèéêëïóöü",
    "da": "åæøé",
    "no": "åæøéòôó",
    "sv": "åäöéü",
    "fi": "äöåé",
    "is": "áæéíðóöúýþ",
    "ca": "àçèéíïòóúü",
    "pl": "ąćęłńóśźż",
    "cs": "áčďéěíňóřšťúůýž",
    "sk": "áäčďéíĺľňóôŕšťúýž",
    "hu": "áéíóöőúüű",
    "hr": "čćđšž",
    "sl": "čšž",
    "ro": "ăâîşţ",
    "sq": "çë",
    "tr": "âçğıîöşüû",
    "lt": "ąčęėįšųūž",
    "lv": "āčēģīķļņšūž",
    "et": "äõöüšž",
    "ru": "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "uk": "",
    "bg": "",
    "sr": "",
    "el": "αβγδεζηθικλμνξοπρςστυφχψωάέήίόύώϊϋΐΰ",
    "he": "",
    "ar": "",
    "fa": "",
    "th": "",
    "vi": "àâãèéêìíòóôõùúýăđĩũơư\u0300\u0301\u0303\u0309\u0323",
}
FOUND_IN_WORDS = {"uk", "bg", "sr", "he", "ar", "fa", "th"}
NOT_LATIN = FOUND_IN_WORDS | {"ru", "el"}
IDEOGRAPHIC = {"zh_cn": "zh_Hans", "zh_tw": "zh_Hant", "ja": "ja", "ko": "ko"}
LOCALES = {"no": "nb", **IDEOGRAPHIC}
FAKER = {
    "zh_cn": ["zh_CN"],
    "zh_tw": ["zh_TW"],
    "en": ["en_US", "en_GB"],
    "ca": ["es_CA"],
    "ar": ["ar_AA", "ar_EG", "ar_SA", "ar_PS", "ar_JO", "ar_DZ"],
}
WORD = re.compile(r"(?:[^\W\d_]|[\u0e31-\u0e4e\u064b-\u0652])+(?:[’'][^\W\d_]+)*")


def main() -> None:
    everyday = dict(line.split(" ", 1) for line in EVERYDAY.read_text(encoding="utf-8").splitlines())
    lines = [
        "# Costs of letter pairs and characters, see letter_statistics.py. Written by tests/formats/train_letters.py."
    ]
    for language in OWN:
        lines += pairs(language, everyday.get(language, "").split())
    for language in IDEOGRAPHIC:
        lines += characters(language)
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def pairs(language: str, everyday: list[str]) -> list[str]:
    """The alphabet, then a row per letter: the cost of every letter after it, in halves. A word's end is first."""
    words: Counter[str] = Counter(dict.fromkeys(everyday, 3.0))  # type: ignore[arg-type]
    for word, count in corpus(language).items():
        for part in re.split("[’'ʼ]", "".join(map(lower, spelled(word, language)))):
            if part:
                words[part] += math.sqrt(count)  # type: ignore[assignment]
    latin = language not in NOT_LATIN
    letters = set(OWN[language]) | (set(ASCII) if latin else set())
    if language in FOUND_IN_WORDS:
        single = weighted(
            letter for word, count in words.items() for letter in ((each, count) for each in word)
        )
        for letter in ASCII:
            single.pop(letter, None)
        letters = {
            each
            for each, share in single.items()
            if share >= 1e-4 * sum(single.values()) and not each.isascii()
        }
    alphabet = "".join(sorted(letters))
    both: Counter[tuple[str, str]] = Counter()
    for word, count in words.items():
        marked = "^" + "".join(each if each in letters else "^" for each in word) + "^"
        for one, two in pairwise(marked):
            if (one, two) != ("^", "^"):
                both[one, two] += count
    left = weighted((one, count) for (one, _), count in both.items())
    right = weighted((two, count) for (_, two), count in both.items())
    symbols, total = "^" + alphabet, sum(right.values())

    def cost(one: str, two: str) -> str:
        alone = (right[two] + total * 3e-4) / (total * (1 + 3e-4 * len(symbols)))
        trust = left[one] / (left[one] + 20) * 0.9
        probability = trust * both[one, two] / max(left[one], 1) + (1 - trust) * alone
        return "0123456789abcdefghi"[min(18, round(-2 * math.log(probability)))]

    return [f"{language} {alphabet}", *("".join(cost(one, two) for two in symbols) for one in symbols)]


def characters(language: str) -> list[str]:
    """The common characters, grouped by their cost."""
    words = corpus(language).items()
    counts = weighted((each, math.sqrt(n)) for word, n in words for each in word if not each.isascii())
    total = sum(counts.values())
    groups: dict[int, str] = {}
    for each, count in counts.most_common(2500):
        cost = min(11, round(-math.log(count / total)))
        groups[cost] = groups.get(cost, "") + each
    return [f"{language} *", *(f"{cost} {group}" for cost, group in sorted(groups.items()))]


def corpus(language: str) -> Counter[str]:
    texts = [*of_cldr(LOCALES.get(language, language)), *of_faker(language)]
    return Counter(word for text in texts for word in WORD.findall(text))


def of_cldr(code: str) -> Iterator[str]:
    locale = importlib.import_module("babel").Locale.parse(code)
    for part in ("languages", "territories", "scripts", "currencies", "months", "days", "variants"):
        yield from strings(dict(getattr(locale, part)))
    for part in ("time_zones", "meta_zones"):
        yield from strings(dict(getattr(locale, part)))
    for part in ("unit_display_names", "currency_names_plural", "unit_patterns", "date_fields"):
        yield from strings(dict(locale._data.get(part, {})))


def of_faker(language: str) -> Iterator[str]:
    for topic in ("person", "address", "lorem", "company", "job", "date_time", "color"):
        package = importlib.import_module(f"faker.providers.{topic}")
        for module in pkgutil.iter_modules(package.__path__):
            if module.name in FAKER.get(
                language, [module.name if module.name.split("_")[0] == language else ""]
            ):
                provider = importlib.import_module(f"faker.providers.{topic}.{module.name}").Provider
                for name, value in vars(provider).items():
                    if not name.startswith("__") and not isinstance(value, str):
                        yield from (text for text in strings(value) if not re.search("{{|[%#?]", text))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from strings(key)
            yield from strings(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from strings(each)


def spelled(word: str, language: str) -> str:
    """As the older encodings write it: Romanian with cedillas, Vietnamese with tones of their own."""
    if language != "vi":
        return word.translate(str.maketrans("șțȘȚ", "şţŞŢ"))
    spelling = ""
    for each in word:
        parts = unicodedata.normalize("NFD", each)
        tones = "".join(part for part in parts if part in "\u0300\u0301\u0303\u0309\u0323")
        plain = unicodedata.normalize("NFC", "".join(part for part in parts if part not in tones))
        spelling += each if each.encode("cp1258", "ignore") else plain + tones
    return spelling


def lower(letter: str) -> str:
    small = "i" if letter == "İ" else letter.lower()
    return small if len(small) == 1 else letter


def weighted(counted: Any) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for each, count in counted:
        found[each] += count
    return found


if __name__ == "__main__":
    main()
