"""What the tests of storage share: a real S3 server, and a line to it that can be spoiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.conftest import client, key, left_behind, make_key  # noqa: F401 (fixtures)
from tests.storage.proxy import Proxy
from tests.storage.s3 import S3


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3]:
    with S3(tmp_path / "s3") as server:
        yield server


@pytest.fixture
def small_s3(tmp_path: Path) -> Iterator[S3]:
    """One whose disk is soon full."""
    with S3(tmp_path / "small-s3", size="8m") as server:
        yield server


@pytest.fixture
def line(s3: S3) -> Iterator[Proxy]:
    """The way to `s3`."""
    with Proxy(s3.port) as proxy:
        yield proxy
