"""The pages of the API documentation: complete, readable without JavaScript, with no request to another host."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx

from weighbridge.api import create, reference
from weighbridge.app import App


class Page(HTMLParser):
    """The tags, links, ids and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.links += [url for url in (given.get("href"), given.get("src")) if url]
        self.ids += [given["id"] or ""] if "id" in given else []

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_pages_need_no_script_and_no_other_host(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert not page.tags & {"script", "link", "img", "iframe", "form"}
    assert all(link.startswith(("/", "#")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    for link in {link for link in page.links if link.startswith("/")}:
        assert (await client.get(link)).status_code == 200, link
    [style] = re.findall("<style>(.*?)</style>", answer.text, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{allowed}';")
    assert "unsafe" not in policy


async def test_every_route_parameter_response_and_schema_is_shown(
    client: httpx.AsyncClient, app: App
) -> None:
    page = Page((await client.get("/api/docs")).text)
    document = create(app).openapi()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert path in page.text
            assert operation["operationId"] in page.ids
            for parameter in operation.get("parameters", ()):
                assert parameter["name"] in page.text
            for answer in operation["responses"].values():
                assert answer["description"].replace("`", "") in page.text
    assert set(document["components"]["schemas"]) - set(page.ids) <= {
        "HTTPValidationError",
        "ValidationError",
    }


def test_descriptions_are_escaped() -> None:
    operation = {
        "operationId": "x",
        "description": "<b>`a<b`</b>",
        "responses": {"200": {"description": "&"}},
    }
    document = {"info": {"title": "<T>", "version": "1"}, "paths": {"/<x>": {"get": operation}}}
    told = reference.html(document)
    assert "<b>" not in told
    assert "&lt;b&gt;<code>a&lt;b</code>&lt;/b&gt;" in told
    assert "<h1>&lt;T&gt;</h1>" in told
