"""`weighbridge projects`: from the first file of a project to its groups and their edits."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests import prefork

from .conftest import Command, Ended
from .test_runbook import understood

DOCS = Path(__file__).parents[2] / "docs"
STATUS = [
    "project_id", "locked", "status", "current_file", "queued_jobs", "running_jobs", "succeeded_jobs", "failed_jobs",
    "progress", "uploadedFiles", "uploadedFileCount", "processedFiles", "processedFileCount", "currentFileName",
    "queuedFiles", "fileErrors", "duplicateFiles", "queuedJobs", "runningJobs", "files", "grouped_at", "groupings",
]  # fmt: skip
SHOES = ("Red Shoes,500", "shoe red,20", "Red  Shoes,400", "blue shoes,70", "sneakers,900", "boot,1")
LOCKED = "weighbridge: CSV processing in progress. Grouping is temporarily locked until import completes.\n"
Query = Callable[..., Any]
Project = Callable[..., Ended]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *lines: str) -> Path:
        (tmp_path / name).write_text("\n".join(["Keyword,Volume", *lines]))
        return tmp_path / name

    return write


@pytest.fixture
def load(main: Command, write: Callable[..., Path]) -> Project:
    """`load("a.csv", "red shoe,5")`: a file of project 1, all the way."""

    def load(name: str, *lines: str, options: tuple[str, ...] = ()) -> Ended:
        return main("load", write(name, *lines), "--pipeline", "keywords", "--project", 1, *options)

    return load


@pytest.fixture
def lock(main: Command, tmp_path: Path) -> Callable[[], None]:
    """A file of project 1 comes, and nobody works on it."""

    def lock() -> None:
        (tmp_path / "drop").mkdir()
        (tmp_path / "drop" / "waiting.csv").write_text("Keyword,Volume\ngreen shoe,1\n")
        options = ("--once", "--no-work", "--settle", 0, "--pipeline", "keywords", "--project", 1)
        assert main("watch", tmp_path / "drop", *options).code == 0

    return lock


def groups(main: Command) -> dict[str, list[str]]:
    return {group["name"]: group["keywords"] for group in shown(main)["groups"]}


def shown(main: Command) -> Any:
    return main("projects", "show", 1, "--json").json


def id_of(main: Command, name: str) -> str:
    [id_] = [group["id"] for group in shown(main)["groups"] if group["name"] == name]
    return str(id_)


def test_the_life_of_a_project_at_the_command_line(
    weighbridge: Command, main: Command, write: Callable[..., Path]
) -> None:
    files = [write("a.csv", *SHOES), write("b.csv", "red shoe,7", "SNEAKERS,5"), write("c.csv", *SHOES)]
    loaded = weighbridge("load", *files, "--pipeline", "keywords", "--project", 1)
    assert (loaded.code, loaded.err) == (0, "")
    lines = [line for line in loaded.out.splitlines() if "arning" not in line]
    assert [re.split(r"\s{2,}", line) for line in lines] == [
        ["file", "status", "rows", "inserted", "duplicate", "invalid"],
        ["a.csv", "completed", "6", "5", "1", "0"],
        ["b.csv", "completed", "2", "1", "1", "0"],
        ["c.csv", "completed (duplicate)", "6", "5", "1", "0"],
        ["Show the groups: weighbridge projects show 1"],
    ]

    told = weighbridge("projects", "show", 1, "--json").json
    assert list(told) == [*STATUS, "groups"]
    assert (told["status"], told["locked"], told["uploadedFiles"]) == ("complete", False, ["a.csv", "b.csv"])
    assert [list(group) for group in told["groups"]] == [
        ["name", "parent", "keywords", "id", "confirmed", "volume"]
    ] * 4
    assert [(group["name"], group["parent"], group["keywords"]) for group in told["groups"]] == [
        ("blue shoes", "blue shoes", ["blue shoes"]),
        ("boot", "boot", ["boot"]),
        ("Red Shoes", "red shoes", ["red shoe", "Red Shoes", "shoe red"]),
        ("sneakers", "sneakers", ["sneakers"]),
    ]
    assert told["groups"][2]["volume"] == 527
    assert told == {**main("projects", "status", 1, "--json").json, "groups": told["groups"]}


def test_a_project_reads_well(main: Command, load: Project) -> None:
    load("a.csv", *SHOES)
    load("poor.csv", "red shoe,many")
    load("again.csv", *SHOES)
    main("projects", "merge", 1, "boots", "--into", "shoe")
    told = main("projects", "show", 1).out
    assert told.startswith("Project 1 (Project 1): complete: 2 of 2 files, 1 failed, 7 of 7 rows.\n")
    rows = [re.split(r"\s{2,}", line.strip()) for line in told.splitlines()]
    assert ["a.csv", "✓ completed", "6", "5", "1", "0"] in rows
    assert ["poor.csv", "⚠ error", "1", "0", "0", "1"] in rows
    assert ["again.csv", "= duplicate"] in rows
    assert "\npoor.csv: The only row is not valid." in told
    assert "\nagain.csv: the same content as a.csv.\n" in told
    assert [id_of(main, "Red Shoes"), "Red Shoes", "red shoes", "2", "520"] in rows
    assert told.endswith("\nboot is merged into shoe.\n")


def test_only_the_first_groups_are_shown_to_people(main: Command, load: Project) -> None:
    load("a.csv", *(f"word{number:02},1" for number in range(21)))
    told = main("projects", "show", 1).out
    assert "word19" in told
    assert "word20" not in told
    assert told.endswith("… and more: weighbridge projects groups 1\n")
    assert "word20" in main("projects", "groups", 1).out
    assert [each["name"] for each in main("projects", "groups", 1, "--limit", 1, "--json").json] == ["word00"]


def test_all_groups_are_one_object_however_many_pages_they_take(
    main: Command, load: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.cli.projects.manage._GROUPS_AT_ONCE", 3)
    load("a.csv", *(f"word{number},1" for number in range(7)))
    assert [group["keywords"] for group in shown(main)["groups"]] == [
        [f"word{number}"] for number in range(7)
    ]
    monkeypatch.setattr("weighbridge.cli.projects.manage._GROUPS_AT_ONCE", 7)
    assert len(shown(main)["groups"]) == 7


def test_a_project_without_files_is_one_object_too(main: Command) -> None:
    assert main("projects", "create", "Empty").out == "Project 1 created: Empty.\n"
    told = shown(main)
    assert (list(told), told["status"], told["groups"]) == ([*STATUS, "groups"], "idle", [])
    assert main("projects", "show", 1).out == "Project 1 (Empty): idle: 0 of 0 files, 0 of 0 rows.\n"


def test_projects_are_made_named_and_listed(main: Command) -> None:
    made = main("projects", "create", "Shoes", "--project", 7, "--json").json
    assert (made["project_id"], made["name"], made["created"]) == (7, "Shoes", True)
    assert main("projects", "create", "Boots", "--project", 7).out == "Project 7 renamed: Boots.\n"
    assert main("projects", "create", "Next").out == "Project 8 created: Next.\n"
    assert main("projects", "create", "Theirs", "--workspace", uuid4()).out == "Project 1 created: Theirs.\n"
    listed = main("projects", "list", "--json").json
    assert [(each["project_id"], each["name"]) for each in listed] == [(7, "Boots"), (8, "Next")]
    assert re.search(r"7  Boots .*\n +8  Next ", main("projects", "list").out)


def test_an_edit_is_refused_while_files_wait_and_goes_through_after(
    main: Command, load: Project, lock: Callable[[], None]
) -> None:
    load("a.csv", *SHOES)
    group = id_of(main, "boot")
    lock()
    before = groups(main)
    for edit in (
        ("merge", 1, "sneakers", "--into", "shoe"), ("unmerge", 1, "sneakers"), ("rename", 1, group, "Boots"),
        ("confirm", 1, group), ("unconfirm", 1, group), ("move", 1, "boot", "--back"), ("regroup", 1),
    ):  # fmt: skip
        refused = main("projects", *edit)
        assert (refused.code, refused.out, refused.err) == (1, "", LOCKED), edit
    assert groups(main) == before
    assert main("projects", "status", 1).out == (
        "Project 1 (Project 1): queued: 1 of 2 files, 6 of 6 rows; the groups are locked.\n"
    )
    assert "waiting.csv  🕒 queued" in main("projects", "show", 1).out

    kicked = main("projects", "kick", 1)
    assert (kicked.code, kicked.err) == (0, "")
    assert kicked.out == "Project 1 (Project 1): complete: 2 of 2 files, 7 of 7 rows.\n"
    assert main("projects", "status", 1, "--watch").out == kicked.out
    assert main("projects", "confirm", 1, group).code == 0


def test_a_kick_prints_the_worker_that_has_the_project(
    main: Command, load: Project, lock: Callable[[], None], query: Query
) -> None:
    load("a.csv", *SHOES)
    nothing = main("projects", "kick", 1)
    assert (nothing.code, nothing.err) == (0, "There was no work to do.\n")
    lock()
    query(
        "INSERT INTO weighbridge.attempts (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)"
        " SELECT 'projects', key, workspace_id, 'host:1:abc', weighbridge.now(), weighbridge.now(),"
        " weighbridge.now() + interval '1 minute' FROM projects"
    )
    held = main("projects", "kick", 1)
    assert held.code == 0
    assert re.fullmatch(
        r"Another worker \(host:1:abc\) runs the project\. "
        r"If it has stopped, the project is taken over at \d\d:\d\d:\d\d UTC\.\n",
        held.err,
    )
    assert main("projects", "kick", 1, "--json").json == {
        "project_id": 1, "status": "processing", "locked": True, "ran": False, "held_by": "host:1:abc",
    }  # fmt: skip


def test_status_waits_until_the_files_are_through(
    lock: Callable[[], None], environment: dict[str, str], query: Query, eventually: Callable[..., Any]
) -> None:
    lock()
    command = [prefork.command(), "projects"]
    waiting = subprocess.Popen(
        [*command, "status", "1", "--watch", "--json"], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        connected = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'"
        asyncio.run(eventually(lambda: query(connected)))
        subprocess.run([*command, "kick", "1"], env=environment, check=True, capture_output=True, timeout=60)
        out, _ = waiting.communicate(timeout=30)
    finally:
        waiting.kill()
    status = json.loads(out)
    assert (waiting.returncode, status["status"], status["processedFileCount"]) == (0, "complete", 1)


def test_failed_files_are_tried_again(main: Command, load: Project, query: Query) -> None:
    load("a.csv", *SHOES)
    assert main("projects", "retry-failed", 1).out == "Project 1 has no failed file to retry.\n"
    query("ALTER TABLE keywords ADD CONSTRAINT broken CHECK (keyword_normalized <> 'red boot') NOT VALID")
    assert load("poor.csv", "red boot,5").code == 1
    [job] = main("projects", "jobs", 1, "--status", "failed", "--json").json
    assert (job["source_filename"], job["error_code"]) == ("poor.csv", "nothing_promoted")
    listed = main("projects", "jobs", 1).out.splitlines()
    assert [line.split()[3:5] for line in listed[1:]] == [["a.csv", "succeeded"], ["poor.csv", "failed"]]
    query("ALTER TABLE keywords DROP CONSTRAINT broken")
    assert main("projects", "retry-failed", 1, "--force-partial").out == "1 file is queued again.\n"
    assert main("projects", "kick", 1).code == 0
    assert shown(main)["failed_jobs"] == 0
    again = main("projects", "retry-failed", 1, "--json")
    assert again.json == {"project_id": 1, "retried": [], "skipped": []}


def test_a_failed_file_that_was_sent_again_is_skipped_and_reported(main: Command, load: Project) -> None:
    load("poor.csv", "red boot,many")
    load("poor.csv", "red boot,many")
    [first, _] = main("projects", "jobs", 1, "--status", "failed", "--json").json
    left = main("projects", "retry-failed", 1)
    assert (left.code, left.out) == (0, "1 file is queued again.\n")
    assert left.err == (
        f"weighbridge: {first['id']}: The same content has been uploaded again since. Use that upload instead.\n"
    )


def test_a_file_that_repeats_one_that_failed_since_is_still_shown(
    main: Command, load: Project, query: Query
) -> None:
    load("poor.csv", "red boot,many")
    query(
        "SELECT weighbridge.note_duplicate(id, 'copy.csv') FROM data_uploads, set_config("
        "'weighbridge.workspace_id', workspace_id::text, false)"
    )  # it came while the first was waiting
    load("poor.csv", "red boot,many")
    told = main("projects", "show", 1)
    assert (told.code, told.err) == (0, "")
    assert "\ncopy.csv: the same content as a failed file.\n" in told.out


def test_groups_are_edited(main: Command, load: Project, query: Query) -> None:
    load("a.csv", *SHOES)
    before = groups(main)
    assert main("projects", "merge", 1, "Sneakers", "--into", "boots").out == "sneaker is merged into boot\n"
    assert groups(main)["sneakers"] == ["boot", "sneakers"]
    assert main("projects", "unmerge", 1, "sneaker").out == "No words are merged.\n"
    assert groups(main) == before

    boot = id_of(main, "boot")
    assert main("projects", "rename", 1, boot, "All boots", "--json").json["name"] == "All boots"
    assert main("projects", "rename", 1, boot, "--json").json["name"] == "boot"
    assert main("projects", "confirm", 1, boot).out.rstrip().endswith("confirmed")
    assert main("projects", "unconfirm", 1, boot, "--json").json["confirmed"] is False

    moved = main("projects", "move", 1, "BOOT", "sneakers", "--new-group", "Mine", "--json").json
    assert (moved["name"], moved["keywords"]) == ("Mine", 2)
    assert main("projects", "move", 1, "blue shoes", "--group", moved["id"], "--json").json["keywords"] == 3
    assert main("projects", "regroup", 1).out == "No keyword changed its group.\n"
    assert (
        main("projects", "move", 1, "boot", "--back").out == "The keywords returned to automatic grouping.\n"
    )
    assert main("projects", "regroup", 1, "--by-hand").out == "2 keywords were moved to other groups.\n"
    assert groups(main) == before
    actors = query("SELECT DISTINCT actor FROM weighbridge.audit_log WHERE action ~ '^(group|project)[.]'")
    assert actors == [("command line",)]


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        (
            "show 8",
            1,
            "There is no project 8. Its first file creates it: weighbridge load FILE --pipeline keywords --project 8.",
        ),
        (f"status 1 --workspace {UUID(int=5)}", 1, "There is no project 1."),
        ("groups x", 1, "project_id: expected a whole number from 1 to 9007199254740991, got 'x'."),
        ("kick 8", 1, "There is no project 8."),
        (
            "confirm 1 boots",
            1,
            "GROUP: expected a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b, got 'boots'.",
        ),
        (f"confirm 1 {UUID(int=5)}", 1, f"The project has no group {UUID(int=5)}."),
        ("move 1 hat --back", 1, "The project has no keyword 'hat'."),
        ("create '' --project 9", 1, "name: expected 1 to 200 printable characters, got ''."),
        ("move 1 boot", 2, "expected one of --group, --new-group and --back"),
        ("move 1 boot --back --new-group Boots", 2, "expected one of --group, --new-group and --back"),
        (
            "jobs 1 --status faild",
            2,
            "--status: expected one of queued, running, succeeded, failed, got 'faild'; did you mean 'failed'?",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    main: Command, load: Project, command: str, code: int, sentence: str
) -> None:
    load("a.csv", *SHOES)
    ended = main("projects", *(word.strip("'") for word in command.split()))
    assert (ended.code, ended.out) == (code, "")
    told = re.sub(r"[\s│]+", " ", ended.err)  # usage errors stand in a box
    assert sentence in told
    assert code == 2 or ended.err.startswith("weighbridge: ")


def commands() -> list[str]:
    """Those on the page about projects, in blocks and between back-ticks."""
    page = (DOCS / "projects.md").read_text()
    blocks = re.findall(r"^weighbridge .*?(?= {2,}#|$)", page, re.MULTILINE)
    return sorted({*blocks, *re.findall(r"`(weighbridge [^`]+)`", page)})


@pytest.mark.parametrize("line", commands())
def test_every_command_on_the_page_about_projects_exists(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jan.csv", "feb.csv"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert understood(line)


def test_the_page_shows_every_command_there_is() -> None:
    from weighbridge.cli.projects import groups, manage

    every = [*manage.app.registered_commands, *groups.app.registered_commands]
    names = {each.name or getattr(each.callback, "__name__", "") for each in every}
    assert names == {line.split()[2] for line in commands() if line.startswith("weighbridge projects")}
