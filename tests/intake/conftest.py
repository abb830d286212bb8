"""What the tests of intake share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CSV = b"Day,Campaign name,Amount spent (USD)\n2025-01-01,Spring,10.50\n"


@pytest.fixture
def left_behind(home: Path, query: Callable[..., Any]) -> Callable[[], list[str]]:
    """What intake left: rows, blobs, scratch files. Nothing, after a refusal."""

    def left_behind() -> list[str]:
        rows = [f"row {id_}" for (id_,) in query("SELECT id FROM data_uploads")]
        files = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
        # What the folder of files that wait is called is there from the start.
        files = [each for each in files if not each.endswith("/spool-id")]
        return rows + files

    return left_behind
