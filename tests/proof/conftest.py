"""What the proofs share: workers that can be killed and frozen, and the scene they work on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import TEMPLATE
from tests.proof.scene import Scene, copied, named, prepare
from tests.proof.workers import Fleet, until


def make_scene(server: str, template: str, home: Path) -> Scene:
    """Prepare a database on the server, and see what the waiting file becomes when nothing disturbs it."""
    name = f"scene_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    asyncio.run(prepare(named(server, name), home))
    fleet = Fleet(home, home)
    with copied(server, name) as stage:
        try:
            fleet.start(stage.url)
            until(lambda: stage.ended)
        finally:
            fleet.kill()
        undisturbed = stage.snapshot()
    statuses = [upload["status"] for upload in undisturbed["data_uploads"]]
    assert sorted(statuses) == ["completed", "partial"]
    return Scene(server, name, home, undisturbed)


@pytest.fixture(scope="session")
def scene(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(postgres, TEMPLATE, tmp_path_factory.mktemp("home"))


@pytest.fixture
def fleet(scene: Scene, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(scene.home, tmp_path)
    yield fleet
    fleet.kill()
