"""Every package that the code imports is declared, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Used without an import: uvicorn serves WebSockets with it; httpcore looks for it at every lock.
UNIMPORTED = {"websockets", "sniffio"}
OPTIONAL = {"psycopg-pool": "psycopg"}  # declared as an extra


def test_every_imported_package_is_declared_and_every_declared_one_is_used() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[\[<>=; ]", each)[0] for each in declared}
    providers = packages_distributions()
    imported = set()
    for name in _imported():
        distributions = {each.lower().replace("_", "-") for each in providers[name]}
        assert distributions & names or distributions & OPTIONAL.keys() or name == "opentelemetry", name
        imported |= {OPTIONAL.get(each, each) for each in distributions}
    assert names - imported - UNIMPORTED == set()


def _imported() -> set[str]:
    found: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"weighbridge"}
