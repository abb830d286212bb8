"""What the tests of providers share: an HTTP client as the queue has one, and every provider with its fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.providers.cases import CASES, Case
from weighbridge.delivery.providers import connections
from weighbridge.delivery.providers.base import Provider
from weighbridge.testing._server import FakeServer


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with connections.client(httpx.Timeout(10)) as client:
        yield client


@pytest.fixture
async def hasty() -> AsyncIterator[httpx.AsyncClient]:
    """One that soon gives up."""
    async with connections.client(httpx.Timeout(0.3)) as client:
        yield client


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def fake(case: Case) -> Iterator[FakeServer]:
    with case.fake() as server:
        yield server


@pytest.fixture
def provider(case: Case, fake: FakeServer) -> Provider:
    return case.adapter(fake)
