"""The OpenAPI document describes every route, and the routes behave as described."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from weighbridge.api import create
from weighbridge.app import App


@pytest.fixture
def api(app: App) -> FastAPI:
    return create(app)


@pytest.fixture
def described(api: FastAPI) -> dict[str, Any]:
    return api.openapi()


async def test_every_route_documents_its_errors(described: dict[str, Any]) -> None:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            codes = set(operation["responses"])
            if path in ("/healthz", "/readyz"):
                assert operation["security"] == [], path
                continue
            # These need a token that is no key and has no scopes.
            keys = path != "/metrics" and not path.startswith("/api/cron/")
            assert {"401", "404" if path == "/metrics" else "403", "503"} <= codes, (method, path)
            ways = [{"bearer": []}, {"header": []}] if keys else [{"bearer": []}]
            assert operation["security"] == ways, (method, path)
            for code in codes - {"200", "201", "202", "204", "207"}:
                schema = operation["responses"][code]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}, (method, path, code)


async def test_every_operation_has_a_unique_id(described: dict[str, Any]) -> None:
    ids = [each["operationId"] for methods in described["paths"].values() for each in methods.values()]
    assert len(ids) == len(set(ids))


async def test_no_two_schemas_share_a_name(described: dict[str, Any]) -> None:
    """FastAPI would publish the paths of their modules."""
    assert [name for name in described["components"]["schemas"] if "__" in name] == []


async def test_the_form_and_its_answers_are_described(described: dict[str, Any]) -> None:
    operation = described["paths"]["/api/uploads"]["post"]
    form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["file"]
    assert form["properties"]["file"]["items"] == {"type": "string", "format": "binary"}
    assert {"workspace_id", "platform", "source", "client_id", "pipeline"} <= set(form["properties"])
    assert {"200", "201", "207", "400", "413", "415", "422"} <= set(operation["responses"])
    assert set(described["components"]["securitySchemes"]) == {"bearer", "header"}


async def test_the_streams_are_described(described: dict[str, Any]) -> None:
    paths = described["paths"]
    assert "text/event-stream" in paths["/api/live"]["get"]["responses"]["200"]["content"]
    assert "text/csv" in paths["/api/uploads/{upload_id}/rejects"]["get"]["responses"]["200"]["content"]
    assert "WS /api/ws" in described["info"]["description"]


async def test_the_description_is_served_to_anyone(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/openapi.json")
    assert answer.status_code == 200
    assert answer.json()["info"]["title"] == "Weighbridge"
