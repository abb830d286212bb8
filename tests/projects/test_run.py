"""S2 §4 and §6: a run works a project's files in order of arrival, then groups once, then lets go."""

from __future__ import annotations

from typing import Any

from tests.projects.conftest import keyword_file


async def test_files_of_a_project_are_imported_and_grouped(
    send: Any, work: Any, standing: Any, groups: Any
) -> None:
    first = await send(keyword_file([("blue shoes", 10), ("Shoes Blue", 90), ("red hat", 5)]), "a.csv")
    second = await send(keyword_file([("the blue shoe", 20), ("RED  HATS", 50)]), "b.csv")
    await work(first, second)
    now = await standing()
    assert [(f.filename, f.status, f.inserted, f.duplicate) for f in now.files] == [
        ("a.csv", "succeeded", 3, 0),
        ("b.csv", "succeeded", 2, 0),
    ]
    assert (now.locked, now.status, now.groupings) == (False, "complete", 1)
    assert await groups() == {
        "shoes blue": ("blue shoes", "Shoes Blue", "the blue shoe"),
        "red hats": ("red hat", "RED HATS"),
    }
