"""Every link and every anchor of the pages leads to something that exists."""

from __future__ import annotations

import re

import pytest

from .pages import ALL, ROOT, prose, slug, text_of

ELSEWHERE = re.compile(r"[a-z]+:")


def links(text: str) -> list[str]:
    plain = re.sub(r"`[^`\n]*`", "", prose(text))
    return re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r'(?:src|srcset|href)="([^"]+)"', plain)


def anchors(page: str) -> set[str]:
    """As GitHub makes them from headings; a repeated heading gets a number."""
    text = prose(text_of(page))
    found: set[str] = set(re.findall(r'<a id="([^"]+)"></a>', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = slug(heading)
        numbered = (f"{plain}-{number}" for number in range(1, 100))
        found.add(plain if plain not in found else next(each for each in numbered if each not in found))
    return found


def broken(page: str, text: str) -> list[str]:
    found = []
    for link in links(text):
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(str(target.resolve().relative_to(ROOT)))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", ALL)
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken(page, text_of(page)) == []


def test_links_that_lead_nowhere_would_be_found() -> None:
    text = "[a](none.md) [b](glossary.md#none) [c](#none) [d](glossary.md#glossary) [e](https://example.com)"
    assert broken("docs/README.md", text) == ["none.md", "glossary.md#none", "#none"]


def test_the_index_names_every_page() -> None:
    named = set(links(text_of("docs/README.md")))
    assert {page.removeprefix("docs/") for page in ALL if page.startswith("docs/")} - {"README.md"} <= named
