"""docs/architecture.md names files that exist, and the two journeys stay short."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = ROOT / "src" / "weighbridge"


def journey(title: str) -> list[str]:
    """Every file that the section names, in either column or in its text."""
    section = PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return list(dict.fromkeys(re.findall(r"`([a-z_/]+\.(?:py|sql))`", section)))


def test_the_journeys_need_few_files_and_these_exist() -> None:
    file, conversion = journey("The journey of a file"), journey("The journey of a conversion")
    assert 20 < len(file) <= 30
    assert 12 < len(conversion) <= 18
    assert [each for each in (*file, *conversion) if not (SOURCE / each).is_file()] == []


def test_every_module_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]*\.(?:py|sql))`", PAGE)
    assert named
    assert [each for each in named if not (SOURCE / each).is_file()] == []


def test_psycopg_is_imported_only_beside_queries() -> None:
    """Beside a `.sql` file; a module that composes SQL from declared names has none."""
    composing = {
        "uploads/new_rows.py",
        "uploads/preview_rows.py",
        "uploads/preview_sql.py",
        "uploads/upsert_sql.py",
    }
    importing = {
        str(each.relative_to(SOURCE))
        for each in SOURCE.rglob("*.py")
        if re.search(r"^(?:from|import) psycopg\b", each.read_text(), re.MULTILINE)
        and each.parent != SOURCE / "postgres"
        and not each.with_suffix(".sql").is_file()
    }
    assert importing == composing


PACKAGES = sorted(each.parent for each in SOURCE.rglob("__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: str(each.relative_to(SOURCE.parent)))
def test_each_package_lists_its_modules(package: Path) -> None:
    """In its docstring, so that a reader of the file tree knows where to begin."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = {each.stem for each in package.glob("*.py")} - {"__init__"}
    subpackages = {each.parent.name for each in package.glob("*/__init__.py")}
    assert [each for each in sorted(modules) if not re.search(rf"\b{each}\b", text)] == []
    assert [each for each in sorted(subpackages) if not re.search(rf"\b{each}/", text)] == []

    names = "|".join(re.findall(r"^ *((?:[a-z_]+/?)(?:, [a-z_]+/?)*)  +\S", text, re.MULTILINE))
    named = {each.rstrip("/") for each in re.split(r", |\|", names) if each}
    named |= set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text))
    assert sorted(named - modules - subpackages) == []


def imports_of(module: Path) -> set[str]:
    """The modules of the package that a module imports, also those inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weighbridge"):
            found |= {f"{node.module}.{each.name}" for each in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def cycle(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; empty if there is none."""
    sorter = TopologicalSorter(imports)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    modules = {
        ".".join(each.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): each
        for each in SOURCE.rglob("*.py")
    }
    imports = {name: imports_of(path) & modules.keys() - {name} for name, path in modules.items()}
    # A module may import names from its own package: the package has imported them before.
    own = {
        name: {each for each in found if not name.startswith(f"{each}.")} for name, found in imports.items()
    }
    assert sum(map(len, own.values())) > 1000
    assert cycle(own) == []


def test_a_circle_of_imports_would_be_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
