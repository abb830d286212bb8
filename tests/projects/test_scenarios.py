"""Scenarios and checklist, with two API processes, three workers and several clients at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from tests.projects.conftest import keyword_file, numbered
from tests.projects.service import Client, Service, Status
from tests.proof.workers import until

FILES, ROWS = 9, 1000
OWN, SHARED, REPEATED, INVALID = 880, 60, 30, 30  # rows of each file
GATE = "LOCK TABLE keywords IN SHARE ROW EXCLUSIVE MODE"  # nobody gets a keyword in
LOCKED = {
    "error": "processing_locked",
    "message": "CSV processing in progress. Grouping is temporarily locked until import completes.",
    "project_id": 1,
}


@pytest.fixture(scope="module")
def service(shared_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(shared_database_url, tmp_path_factory.mktemp("service"))
    yield service
    service.end()


@pytest.fixture
def client(service: Service, workspace: UUID) -> Client:
    return service.client(workspace)


def _own(number: int) -> list[str]:
    """Keywords that are in one file only; two and two mean the same."""
    pairs = [(f"blue item {number}x{n:03}", f"item {number}x{n:03} blue") for n in range(OWN // 2)]
    return [keyword for pair in pairs for keyword in pair]


def _file(number: int) -> tuple[str, bytes]:
    own = _own(number)
    rows: list[tuple[str, object]] = [
        *((keyword, 10) for keyword in own),
        *((f"shared {n:02}", number) for n in range(SHARED)),
        *((keyword.upper().replace(" ", "  "), 5) for keyword in own[:REPEATED]),
        *(("", 7) if n % 2 else (f"wrong {n}", "many") for n in range(INVALID)),
    ]
    assert len(rows) == ROWS
    return f"{number}.csv", keyword_file(rows)


NINE = [_file(number) for number in range(FILES)]
KEYWORDS = sorted([*(k for n in range(FILES) for k in _own(n)), *(f"shared {n:02}" for n in range(SHARED))])


def _check_nine_landed(service: Service, client: Client, end: Status) -> None:
    """Every row is accounted for, every keyword is there once and grouped, every file is announced once."""
    files = end["files"]
    assert all(file["inserted"] + file["duplicate"] + file["invalid"] == ROWS for file in files)
    sums = [sum(file[bin] for file in files) for bin in ("inserted", "duplicate", "invalid")]
    assert sums == [len(KEYWORDS), 9_000 - len(KEYWORDS) - FILES * INVALID, FILES * INVALID]
    assert end["progress"] == {"rows_total": 9_000, "rows_processed": 9_000}
    in_table = service.stage.query(
        'SELECT keyword_normalized FROM keywords WHERE workspace_id = %s ORDER BY keyword_normalized COLLATE "C"',
        (client.workspace,),
    )
    assert [keyword for (keyword,) in in_table] == KEYWORDS
    assert _group_sizes(service, client) == {2: FILES * OWN // 2, 1: SHARED}
    assert service.stage.query(
        "SELECT count(*), count(DISTINCT upload_id) FROM weighbridge.events"
        " WHERE workspace_id = %s AND type = 'IngestionCompleteEvent'",
        (client.workspace,),
    ) == [(FILES, FILES)]


def _group_sizes(service: Service, client: Client) -> dict[int, int]:
    """How many groups there are of each size."""
    rows = service.stage.query(
        "SELECT size, count(*) FROM (SELECT count(m) AS size FROM keyword_groups g LEFT JOIN group_keywords m"
        " ON m.workspace_id = g.workspace_id AND m.project_id = g.project_id AND m.group_id = g.id"
        " WHERE g.workspace_id = %s GROUP BY g.id) groups GROUP BY size",
        (client.workspace,),
    )
    return dict(rows)


def _runs(service: Service, client: Client) -> list[str | None]:
    """How the runs of the project ended, one after the other; None: it is under way. No two overlap."""
    rows = service.stage.query(
        "SELECT outcome, opened_at >= lag(closed_at) OVER (ORDER BY opened_at) FROM weighbridge.attempts"
        " WHERE queue = 'projects' AND workspace_id = %s ORDER BY opened_at",
        (client.workspace,),
    )
    assert all(apart for _, apart in rows[1:])
    return [outcome for outcome, _ in rows]


def _jobs(service: Service, client: Client) -> list[tuple[Any, ...]]:
    """The jobs as they were begun: name, attempts. No two overlap."""
    rows = service.stage.query(
        "SELECT d.filename, d.attempts, a.opened_at >= lag(a.closed_at) OVER (ORDER BY a.opened_at)"
        " FROM weighbridge.attempts a JOIN data_uploads d ON d.id = a.subject"
        " WHERE a.queue = 'uploads' AND a.workspace_id = %s ORDER BY a.opened_at",
        (client.workspace,),
    )
    assert all(apart for *_, apart in rows[1:])
    return [row[:2] for row in rows]


def test_s1_single_csv_upload(service: Service, client: Client) -> None:
    sent = client.send(("a.csv", keyword_file([("blue shoes", 10), ("shoe blue", 90), ("red hat", 5)])))
    assert (sent["status"], sent["duplicate"]) == ("pending", False)
    [*_, end] = client.watch(files=1)
    [file] = end["files"]
    assert (file["status"], file["attempts"], file["inserted"]) == ("succeeded", 1, 3)
    assert end["groupings"] == 1
    assert _runs(service, client) == ["done"]
    assert [g["name"] for g in client.get("/api/projects/1/groups")["groups"]] == ["red hat", "shoe blue"]
    assert client.edit("regroup").status_code == 200


def test_s2_multiple_csvs_uploaded_in_one_batch(service: Service, client: Client) -> None:
    with service.blocked(GATE):
        sent = client.send(*NINE)
        assert [file["status"] for file in sent["uploads"]] == ["pending"] * FILES
        until(lambda: service.stage.waits_for("keywords"))
        waiting = client.status()
        assert (waiting["queued_jobs"], waiting["current_file"]) == (8, "0.csv")
    history = client.watch(files=FILES)
    assert all(status["locked"] for status in history[:-1])
    assert history[-1]["groupings"] == 1
    _check_nine_landed(service, client, history[-1])
    assert _runs(service, client) == ["done"]
    assert _jobs(service, client) == [(name, 1) for name, _ in NINE]


def test_s3_upload_csv_a_then_csv_b_shortly_after(service: Service, client: Client) -> None:
    with service.blocked(GATE):
        client.send(("a.csv", numbered(0, 50)))
        until(lambda: client.status()["current_file"] == "a.csv")
        client.send(("b.csv", numbered(50, 50)))
        client.edit("kick")
        assert client.status()["queuedFiles"] == ["b.csv"]
    history = client.watch(files=2)
    assert all(status["locked"] for status in history[:-1])
    assert history[-1]["groupings"] == 1
    assert _runs(service, client) == ["done"]
    assert _jobs(service, client) == [("a.csv", 1), ("b.csv", 1)]
    assert _group_sizes(service, client) == {1: 100}


def test_s4_client_retries_upload_request_duplicate_uploads(service: Service, client: Client) -> None:
    content = numbered(0, 200)
    sent = client.send_at_once([("a.csv", content)] * 6)
    assert sorted(file["duplicate"] for file in sent) == [False] + [True] * 5
    assert len({file["upload_id"] for file in sent}) == 1
    client.watch(files=1)
    assert client.send(("again.csv", content))["duplicate"]
    [*_, end] = client.watch(files=1)
    assert (end["uploadedFiles"], end["progress"]["rows_total"]) == (["a.csv"], 200)
    assert [(d["filename"], d["times"]) for d in end["duplicateFiles"]] == [("a.csv", 5), ("again.csv", 1)]
    assert end["groupings"] == 1

    before = service.stage.query("SELECT keyword, xmin::text FROM keywords ORDER BY 1")
    client.send(("on purpose.csv", content), force="true")  # the job runs a second time
    [*_, end] = client.watch(files=2)
    assert [(f["inserted"], f["duplicate"], f["invalid"]) for f in end["files"]] == [(200, 0, 0), (0, 200, 0)]
    assert service.stage.query("SELECT keyword, xmin::text FROM keywords ORDER BY 1") == before


# A keyword from the middle of a file, as if another had just written it and not yet committed.
IN_THE_MIDDLE = """
INSERT INTO keywords (workspace_id, project_id, keyword_normalized, tokens, upload_id, line, created_at, updated_at)
VALUES (%s, 1, %s, 'x', gen_random_uuid(), 1, now(), now())
"""


def test_s5_crash_during_processing(service: Service, client: Client) -> None:
    middle = sorted(_own(4))[OWN // 2]
    client.make_project()
    with (
        service.blocked(IN_THE_MIDDLE, (client.workspace, middle)),
        ThreadPoolExecutor(1) as clients,
    ):
        sending = clients.submit(client.send_at_once, NINE)
        [*_, stuck] = client.watch_until(lambda s: s["uploadedFileCount"] == FILES and _stuck(s))
        sending.result()
        [killed] = _running(stuck)
        service.kill(_lease_owner(service, client))
    [*_, end] = client.watch(files=FILES, lost=killed["job_id"])
    _check_nine_landed(service, client, end)
    assert {f["job_id"] for f in end["files"] if f["attempts"] > 1} == {killed["job_id"]}
    *before, lost, taken_up = _runs(service, client)
    assert (set(before) | {taken_up}, lost) == ({"done"}, "expired")
    assert len(_jobs(service, client)) == FILES + 1


def _stuck(status: Status) -> bool:
    """The file whose keyword is held back is in its middle, as far as it gets."""
    return any(f["filename"] == "4.csv" and OWN // 2 <= f["rows_processed"] < ROWS for f in _running(status))


def _running(status: Status) -> list[dict[str, Any]]:
    return [file for file in status["files"] if file["status"] == "running"]


def _lease_owner(service: Service, client: Client) -> str:
    [(owner,)] = service.stage.query(
        "SELECT lease_owner FROM project_processing_leases WHERE workspace_id = %s AND project_id = 1",
        (client.workspace,),
    )
    return str(owner)


def test_s6_user_attempts_grouping_during_processing(service: Service, client: Client) -> None:
    client.send(("a.csv", keyword_file([("red shoe", 10), ("red sneaker", 5)])))
    client.watch(files=1)
    [first, _] = client.get("/api/projects/1/groups")["groups"]
    edits: list[tuple[str, Any]] = [
        ("tokens/merge", {"tokens": ["sneaker"], "into": "shoe"}),
        (f"groups/{first['id']}/confirm", None),
        ("regroup", None),
    ]
    before = client.get("/api/projects/1/groups")
    with service.blocked(GATE):
        client.send(("b.csv", keyword_file([("green sneaker", 10)])))
        for path, body in edits * 2:  # of both APIs
            refused = client.edit(path, body)
            assert (refused.status_code, refused.json()) == (409, LOCKED)
        assert client.get("/api/projects/1/groups") == before
    client.watch(files=2)
    for path, body in edits:
        assert client.edit(path, body).status_code == 200
    groups = client.get("/api/projects/1/groups")["groups"]
    assert [(g["parent"], g["keywords"]) for g in groups] == [("green sneaker", 1), ("red shoe", 2)]


# The checklist, against the whole service. test_checklist.py looks closer, and has the concurrent kicks.


def test_multi_file_all_jobs_processed(service: Service, client: Client) -> None:
    files = [(f"{number}.csv", numbered(40 * number, 40)) for number in range(6)]
    client.send_at_once([*files, ("bad.csv", keyword_file([("wrong", "many")]))])
    [*_, end] = client.watch(files=7)
    assert (end["succeeded_jobs"], end["fileErrors"][0]["filename"]) == (6, "bad.csv")
    assert _group_sizes(service, client) == {1: 240}
    assert all(outcome == "done" for outcome in _runs(service, client))
    assert len(_jobs(service, client)) == 7


def test_retry_idempotency_no_duplicate_keywords(service: Service, client: Client) -> None:
    content = numbered(0, 120)
    client.send(("a.csv", content))
    with ThreadPoolExecutor(3) as clients:  # the same job again, on purpose, from several at once
        list(
            clients.map(lambda name: client.send((name, content), force="true"), ("b.csv", "c.csv", "d.csv"))
        )
    [*_, end] = client.watch(files=4)
    assert sorted(file["inserted"] for file in end["files"]) == [0, 0, 0, 120]
    assert sorted(file["duplicate"] for file in end["files"]) == [0, 120, 120, 120]
    found = service.stage.query(
        "SELECT count(*), count(DISTINCT keyword_normalized) FROM keywords WHERE workspace_id = %s",
        (client.workspace,),
    )
    assert found == [(120, 120)]


def test_409_grouping_mutations_during_processing(service: Service, client: Client) -> None:
    client.send(("a.csv", keyword_file([("red shoe", 9), ("red sneaker", 5), ("red hat", 4)])))
    client.watch(files=1)
    group = client.get("/api/projects/1/groups")["groups"][0]["id"]
    edits: list[tuple[str, Any]] = [
        ("tokens/merge", {"tokens": ["sneaker"], "into": "shoe"}),
        ("tokens/unmerge", {"tokens": ["sneaker"]}),
        (f"groups/{group}/confirm", None),
        (f"groups/{group}/unconfirm", None),
        ("keywords/move", {"keywords": ["red shoe"], "group_id": group}),
        ("regroup", {"by_hand": True}),
    ]
    with service.blocked(GATE):
        client.send(("b.csv", numbered(0, 10)))
        until(lambda: client.status()["running_jobs"] == 1)
        for path, body in edits * 2:  # of both APIs
            refused = client.edit(path, body)
            assert (refused.status_code, refused.json()) == (409, LOCKED), path
    client.watch(files=2)
    assert [client.edit(path, body).status_code for path, body in edits] == [200] * len(edits)


def test_recovery_sweep_requeues_stale_running_jobs(service: Service, client: Client) -> None:
    client.make_project()
    with service.blocked(GATE):
        client.send(("a.csv", numbered(0, 20)), ("b.csv", numbered(20, 20)))
        until(lambda: client.status()["current_file"] == "a.csv")
        service.kill(_lease_owner(service, client))
        [stale, _] = client.status()["files"]
        # Back in its queue, and begun again by another worker.
        until(lambda: client.status()["files"][0]["attempts"] == 2)
    [*_, end] = client.watch(files=2)
    assert [(file["attempts"], file["inserted"]) for file in end["files"]] == [(2, 20), (1, 20)]
    assert end["files"][0]["job_id"] == stale["job_id"]
    assert _runs(service, client) == ["expired", "done"]


def test_deterministic_ordering_of_job_processing(service: Service, client: Client) -> None:
    names = ["f.csv", "b.csv", "d.csv", "a.csv", "e.csv", "c.csv"]
    with service.blocked(GATE):
        for number, name in enumerate(names):
            client.send((name, numbered(100 * number, 60 - 10 * number)))
        until(lambda: client.status()["current_file"] == "f.csv")
    client.watch(files=len(names))
    assert _jobs(service, client) == [(name, 1) for name in names]
