"""Every package that the code imports is declared, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Used without an import: uvicorn serves WebSockets with it; httpcore looks for it at every lock.
UNIMPORTED = {"websockets", "sniffio"}
OPTIONAL = {"psycopg-pool": "psycopg"}  # declared as an extra
LOCAL = {"weighbridge", "tests", "bench", "examples", "rules"}  # pytest puts tests/ on the path


def test_every_imported_package_is_declared_and_every_declared_one_is_used() -> None:
    names = _declared(_project()["dependencies"])
    imported = set()
    for name in _imported("src"):
        distributions = _distributions(name)
        assert distributions & names or distributions & OPTIONAL.keys() or name == "opentelemetry", name
        imported |= {OPTIONAL.get(each, each) for each in distributions}
    assert names - imported - UNIMPORTED == set()


def test_every_package_that_tests_import_is_declared() -> None:
    names = (
        _declared(_project()["dependencies"]) | _declared(_lines("dev.in")) | _declared(_lines("bench.in"))
    )
    undeclared = {
        name
        for name in _imported("tests", "bench", "examples") - LOCAL
        if not {*_distributions(name), name} & (names | OPTIONAL.keys()) and name != "opentelemetry"
    }
    assert undeclared == set()


def test_every_plugin_of_pytest_is_declared() -> None:
    """Plugins are loaded by name, and imported nowhere."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    known = {each.name: _normalised(each.dist.name) for each in entry_points(group="pytest11") if each.dist}
    plugins = {known[name] for name in re.findall(r"-p (\w+)", options)}
    assert plugins - _declared(_lines("dev.in")) == set()


def test_the_contract_of_the_model_names_every_dependency() -> None:
    """import-linter needs a list: a new dependency would be allowed in weighbridge.model."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [model] = [each for each in contracts if each.get("source_modules") == ["weighbridge.model"]]
    names = _declared(_project()["dependencies"]) | OPTIONAL.keys()
    modules = {name for name in _installed() if _distributions(name) & names}
    assert modules & _imported("src") | UNIMPORTED == set(model["forbidden_modules"])


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _lines(file: str) -> list[str]:
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    return [line for line in lines if line and line[0] not in "#-"]


def _declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=; ]", each)[0] for each in requirements}


def _distributions(module: str) -> set[str]:
    return {_normalised(each) for each in _installed().get(module, ())}


@cache
def _installed() -> Mapping[str, list[str]]:
    """Reads the metadata of every installed package, which takes as long as all the rest."""
    return packages_distributions()


def _normalised(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def _imported(*folders: str) -> set[str]:
    found: set[str] = set()
    for file in (file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"weighbridge"}
