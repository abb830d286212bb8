"""Projects over HTTP: status, jobs, retry, kick."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from weighbridge.api import create
from weighbridge.app import App
from weighbridge.postgres.listen import notifications

from .conftest import Keywords, MakeKey, Query
from .test_access import CALLS, api_routes

DOCS = Path(__file__).parents[2] / "docs"
NAMES = [
    "project_id", "locked", "status", "current_file", "queued_jobs", "running_jobs", "succeeded_jobs", "failed_jobs",
    "progress", "uploadedFiles", "uploadedFileCount", "processedFiles", "processedFileCount", "currentFileName",
    "queuedFiles", "fileErrors", "duplicateFiles", "queuedJobs", "runningJobs", "files", "grouped_at", "groupings",
]  # fmt: skip
FILE_NAMES = [
    "job_id", "filename", "status", "attempts", "rows_total", "rows_processed", "inserted", "duplicate", "invalid",
    "error", "message",
]  # fmt: skip
POOR = ("blue shoe,many",)  # no row is valid: it fails


# Status


async def test_a_file_without_a_worker_is_queued_and_locks_the_project(keywords: Keywords) -> None:
    sent = await keywords.send("red shoe,100", name="jan.csv")
    status = await keywords.status()
    assert list(status) == NAMES
    assert [list(file) for file in status["files"]] == [FILE_NAMES]
    assert (status["project_id"], status["locked"], status["status"]) == (7, True, "queued")
    assert (status["queued_jobs"], status["queuedJobs"], status["running_jobs"]) == (1, 1, 0)
    assert (status["uploadedFiles"], status["queuedFiles"]) == (["jan.csv"], ["jan.csv"])
    assert (status["processedFiles"], status["processedFileCount"], status["uploadedFileCount"]) == ([], 0, 1)
    assert (status["current_file"], status["grouped_at"], status["groupings"]) == (None, None, 0)
    assert status["files"][0]["job_id"] == str(sent)


async def test_a_failed_file_counts_as_processed_and_a_duplicate_does_not_count(keywords: Keywords) -> None:
    await keywords.send("red shoe,100", "Red  Shoe,90", "blue shoe,5", name="jan.csv")
    failing = await keywords.send(*POOR, name="feb.csv")
    await keywords.send("blue shoe,5", "green shoe,7", name="mar.csv")
    await keywords.work()
    await keywords.send("red shoe,100", "Red  Shoe,90", "blue shoe,5", name="again.csv")
    status = await keywords.status()
    assert (status["locked"], status["status"], status["groupings"]) == (False, "complete", 1)
    assert status["uploadedFiles"] == status["processedFiles"] == ["jan.csv", "feb.csv", "mar.csv"]
    assert status["uploadedFileCount"] == status["processedFileCount"] == 3
    assert (status["succeeded_jobs"], status["failed_jobs"]) == (2, 1)
    assert status["progress"] == {"rows_total": 6, "rows_processed": 6}
    [error] = status["fileErrors"]
    assert (error["filename"], error["job_id"]) == ("feb.csv", str(failing))
    assert error["error"] == "no_valid_rows"
    assert error["message"].startswith("The only row is not valid.")
    [again] = status["duplicateFiles"]
    assert (again["filename"], again["times"]) == ("again.csv", 1)
    assert again["duplicate_of"] == status["files"][0]["job_id"]
    counts = [(file["inserted"], file["duplicate"], file["invalid"]) for file in status["files"]]
    assert counts == [(2, 1, 0), (0, 0, 1), (1, 1, 0)]


async def test_the_status_has_two_names(keywords: Keywords) -> None:
    await keywords.load("red shoe,100")
    answer = await keywords.client.get("/projects/7/processing-status", headers=keywords.key)
    assert (answer.status_code, answer.json()) == (200, await keywords.status())


# Projects


async def test_projects_are_made_named_and_listed_by_number(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    async def make(status: int, **body: Any) -> Any:
        answer = await client.post("/api/projects", headers=key, json=body)
        assert answer.status_code == status
        return answer.json()

    made = await make(201, name="  Winter \t shoes ", project_id=5)
    assert list(made) == ["project_id", "name", "created_at", "grouped_at", "groupings"]
    assert (made["project_id"], made["name"], made["grouped_at"]) == (5, "Winter shoes", None)
    assert await make(200, name="Boots", project_id=5) == {**made, "name": "Boots"}
    assert (await make(201, name="Next"))["project_id"] == 6
    assert (await make(201, name="First", project_id=1))["project_id"] == 1
    seen, after = [], {}
    for expected in (2, 1):
        page = (await client.get("/api/projects", headers=key, params={"limit": 2, **after})).json()
        assert len(page["projects"]) == expected
        seen += [(each["project_id"], each["name"]) for each in page["projects"]]
        after = {"after": page["next"]}
    assert seen == [(1, "First"), (5, "Boots"), (6, "Next")]
    assert page["next"] is None


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        ({}, "invalid_request", "body.name: expected a value, got none."),
        ({"name": 7}, "invalid_request", "body.name: expected text."),
        ({"name": " "}, "invalid_name", "name: expected 1 to 200 printable characters, got ' '."),
        ({"name": "a\0b"}, "invalid_name", "name: expected 1 to 200 printable characters, got 'a\\x00b'."),
        ({"name": "a", "project_id": 0}, "invalid_request", "body.project_id: expected at least 1."),
        ({"name": "a", "project_id": "7.0"}, "invalid_request", "body.project_id: expected a whole number."),
        ({"name": "a", "project_id": True}, "invalid_request", "body.project_id: expected a whole number."),
        ({"name": "a", "project_id": 1.5}, "invalid_request", "body.project_id: expected a whole number."),
        (
            {"name": "a", "project_id": 2**53},
            "invalid_request",
            "body.project_id: expected at most 9007199254740991.",
        ),
        ({"name": "a", "id": 7}, "invalid_request", "body: 'id' is not a field; there is name, project_id."),
    ],
)
async def test_an_invalid_request_creates_no_project(
    client: httpx.AsyncClient, key: dict[str, str], query: Query, body: Any, code: str, sentence: str
) -> None:
    answer = await client.post("/api/projects", headers=key, json=body)
    assert (answer.status_code, answer.json()) == (422, {"error": code, "message": sentence})
    assert query("SELECT id FROM projects") == []


async def test_no_project_is_created_after_the_last_number(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    await client.post("/api/projects", headers=key, json={"name": "Last", "project_id": 2**53 - 1})
    answer = await client.post("/api/projects", headers=key, json={"name": "Beyond"})
    assert (answer.status_code, answer.json()["error"]) == (409, "no_number_left")


async def test_a_project_has_the_counts_of_its_files(keywords: Keywords) -> None:
    await keywords.load("red shoe,100", "Red  Shoe,90", "blue shoe,5")
    await keywords.send("green shoe,7", name="b.csv")
    told = await keywords.ask()
    assert (told["project_id"], told["name"], told["status"], told["locked"]) == (
        7,
        "Project 7",
        "queued",
        True,
    )
    assert (told["files"], told["queued_jobs"], told["succeeded_jobs"]) == (2, 1, 1)
    assert (told["rows_total"], told["inserted"], told["duplicate"], told["invalid"]) == (3, 2, 1, 0)
    assert told["grouped_at"]


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        ("0", "path.project_id: expected at least 1."),
        ("-1", "path.project_id: expected a whole number."),
        ("seven", "path.project_id: expected a whole number."),
        ("7.0", "path.project_id: expected a whole number."),
        ("1_000", "path.project_id: expected a whole number."),
        ("%D9%A7", "path.project_id: expected a whole number."),
        ("%207", "path.project_id: expected a whole number."),
        ("9007199254740992", "path.project_id: expected at most 9007199254740991."),
        ("9" * 5000, "path.project_id: expected a smaller number."),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/projects/{}/processing/status"), ("POST", "/api/projects/{}/regroup")]
)
async def test_an_invalid_project_number_is_422(
    client: httpx.AsyncClient, key: dict[str, str], method: str, path: str, number: str, sentence: str
) -> None:
    answer = await client.request(method, path.format(number), headers=key)
    assert (answer.status_code, answer.json()) == (422, {"error": "invalid_request", "message": sentence})


BODIES = {
    "/tokens/merge": {"tokens": ["a"], "into": "b"},
    "/tokens/unmerge": {"tokens": ["a"]},
    "/keywords/move": {"keywords": ["a"]},
    "/groups/{id}": {"name": "a"},
}
OF_A_PROJECT = [
    (method, path.replace("projects/{id}", "projects/7", 1))
    for method, path, _ in CALLS
    if "projects/{id}" in path
]


@pytest.mark.parametrize(("method", "path"), OF_A_PROJECT)
async def test_an_unknown_project_or_one_of_another_workspace_is_404(
    keywords: Keywords, make_key: MakeKey, method: str, path: str
) -> None:
    await keywords.load("a,1")
    theirs = await make_key("read", "upload", "operate", of=uuid4())
    body = BODIES.get(path.removeprefix("/api/projects/7"))
    sent = {"json": body} if method in ("POST", "PATCH") else {}
    for headers, number in ((theirs, 7), (keywords.key, 8)):
        url = path.replace("/7", f"/{number}").format(id=uuid4())
        answer = await keywords.client.request(method, url, headers=headers, **sent)
        assert (answer.status_code, answer.json()) == (
            404,
            {
                "error": "unknown_project",
                "message": f"There is no project {number}. Its first file creates it: "
                f"POST /api/uploads with pipeline=keywords and project_id={number}.",
            },
        )


async def test_another_workspaces_projects_are_not_listed(keywords: Keywords, make_key: MakeKey) -> None:
    await keywords.send("a,1")
    theirs = await make_key("read", of=uuid4())
    listed = await keywords.client.get("/api/projects", headers=theirs)
    assert listed.json() == {"projects": [], "next": None}


# Jobs


async def test_jobs_are_rows_in_order_of_arrival(keywords: Keywords) -> None:
    names = [f"{number}.csv" for number in range(3)]
    ids = [str(await keywords.send(f"shoe {name},1", name=name)) for name in names]
    seen, after = [], {}
    for expected in (2, 1):
        page = await keywords.ask("/jobs", limit=2, **after)
        assert len(page["jobs"]) == expected
        seen += page["jobs"]
        after = {"after": page["next"]}
    assert page["next"] is None
    assert [job["id"] for job in seen] == [job["csv_upload_id"] for job in seen] == ids
    assert [job["source_filename"] for job in seen] == names
    assert list(seen[0]) == [
        "id", "project_id", "csv_upload_id", "status", "source_filename", "idempotency_key", "attempts", "error",
        "created_at", "started_at", "finished_at", "upload_status", "error_code", "rows", "inserted", "duplicate",
        "invalid",
    ]  # fmt: skip


async def test_jobs_are_filtered_by_status(keywords: Keywords) -> None:
    await keywords.send("red shoe,100")
    failed = await keywords.send(*POOR, name="b.csv")
    await keywords.work()
    waiting = await keywords.send("blue shoe,1", name="c.csv")
    assert [job["id"] for job in (await keywords.ask("/jobs", status="failed"))["jobs"]] == [str(failed)]
    assert [job["id"] for job in (await keywords.ask("/jobs", status="queued"))["jobs"]] == [str(waiting)]
    assert (await keywords.ask("/jobs", status="running"))["jobs"] == []
    wrong = await keywords.client.get(f"{keywords.url}/jobs?status=faild", headers=keywords.key)
    assert (wrong.status_code, wrong.json()["message"]) == (
        422,
        "query.status: expected one of 'queued', 'running', 'succeeded' or 'failed'; did you mean 'failed'?",
    )


@pytest.mark.parametrize(
    "path", ["/projects", "/projects/7/jobs", "/projects/7/groups", "/projects/7/keywords"]
)
@pytest.mark.parametrize("after", ["yesterday", "AA", "YQAfYg", "\N{GREEK SMALL LETTER ALPHA}"])
async def test_an_invalid_cursor_is_422(keywords: Keywords, path: str, after: str) -> None:
    await keywords.send("a,1")
    answer = await keywords.client.get(f"/api{path}", headers=keywords.key, params={"after": after})
    assert (answer.status_code, answer.json()) == (
        422,
        {
            "error": "invalid_request",
            "message": "query.after: expected the `next` value of the previous page.",
        },
    )


# Another try


async def test_every_failed_job_is_reopened_once(keywords: Keywords, query: Query) -> None:
    await keywords.send("red shoe,100")
    query(
        "ALTER TABLE keywords ADD CONSTRAINT broken CHECK (keyword_normalized NOT LIKE 'boot%%') NOT VALID",
        (),
    )
    failed = [str(await keywords.send(f"boot {n},1", name=f"{n}.csv")) for n in range(2)]
    await keywords.work()
    answer = await keywords.post("/jobs/retry-failed")
    assert (answer.status_code, answer.json()) == (200, {"project_id": 7, "retried": failed, "skipped": []})
    assert (await keywords.status())["queued_jobs"] == 2
    assert (await keywords.post("/jobs/retry-failed")).json() == {
        "project_id": 7, "retried": [], "skipped": [],
    }  # fmt: skip
    actions = query("SELECT actor LIKE 'key %' FROM weighbridge.audit_log WHERE action = 'upload.retry'")
    assert actions == [(True,), (True,)]
    await keywords.work()
    assert (await keywords.status())["failed_jobs"] == 2
    query("ALTER TABLE keywords DROP CONSTRAINT broken")
    mended = (await keywords.post("/jobs/retry-failed", {"force_partial": True})).json()
    assert mended["retried"] == failed
    await keywords.work()
    status = await keywords.status()
    assert (status["failed_jobs"], status["succeeded_jobs"], status["groupings"]) == (0, 3, 3)


async def test_a_failed_job_whose_content_was_sent_again_is_skipped_and_listed(keywords: Keywords) -> None:
    failed = await keywords.load(*POOR, name="a.csv")
    other = await keywords.load(*POOR, "green shoe,x", name="b.csv")
    again = await keywords.load(*POOR, name="a.csv")
    assert again != failed
    message = "The same content has been uploaded again since. Use that upload instead."
    assert (await keywords.post("/jobs/retry-failed")).json() == {
        "project_id": 7,
        "retried": [str(other), str(again)],
        "skipped": [{"job_id": str(failed), "error": "superseded", "message": message}],
    }


async def test_an_invalid_retry_request_is_422(keywords: Keywords) -> None:
    await keywords.send("a,1")
    answer = await keywords.post("/jobs/retry-failed", {"force_partal": True})
    assert (answer.status_code, answer.json()["message"]) == (
        422,
        "body: 'force_partal' is not a field; did you mean 'force_partial'?",
    )


# A kick


async def test_a_kick_wakes_the_workers(keywords: Keywords) -> None:
    await keywords.send("red shoe,100")
    heard = notifications(keywords.app.db.url, "weighbridge_work")
    await anext(heard)  # that it listens
    answer = await keywords.post("/kick")
    assert (answer.status_code, answer.json()) == (
        202,
        {"project_id": 7, "status": "queued", "locked": True},
    )
    async with asyncio.timeout(10):
        assert await anext(heard) == ""
    await heard.aclose()
    await keywords.work()
    assert (await keywords.post("/kick")).json() == {"project_id": 7, "status": "complete", "locked": False}


# What is written about it


async def test_every_route_is_in_the_http_documentation(app: App) -> None:
    page = (DOCS / "http.md").read_text()
    for route in api_routes(create(app)):
        path = re.sub(r"{(upload|project|file)_id}", "{id}", route.path)
        assert f"{path}`" in page, path


def test_every_field_of_the_status_is_explained() -> None:
    page = (DOCS / "projects.md").read_text()
    assert [name for name in NAMES + FILE_NAMES if f"`{name}`" not in page] == []


async def test_every_url_in_the_project_documentation_is_a_route(app: App) -> None:
    page = (DOCS / "projects.md").read_text()
    patterns = [re.sub(r"{\w+}", "[^/]+", route.path) for route in api_routes(create(app))]
    addresses = re.findall(r"https?://127\.0\.0\.1:8080([^\s\"?]*)", page)
    assert len(addresses) > 5
    for address in addresses:
        assert any(re.fullmatch(pattern, address) for pattern in patterns), address
