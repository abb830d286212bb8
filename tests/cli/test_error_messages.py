"""Errors of users and machines: one sentence on stderr and exit code 1, never a traceback."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests import prefork
from weighbridge import __version__
from weighbridge.cli.uploads.complete_files import put_aside

from .conftest import Command, Ended

ROW = "Day,Campaign name,Amount spent\n2025-01-01,Spring,1.5\n"


def sentence(done: Ended) -> str:
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("weighbridge: ")
    assert done.err.count("\n") == 1
    return done.err.removeprefix("weighbridge: ").rstrip("\n")


@pytest.mark.parametrize(
    ("user", "database", "answer"),
    [
        ("postgres", "no_such", 'database "no_such" does not exist'),
        ("no_such", "postgres", 'role "no_such" does not exist'),
    ],
)
def test_the_error_of_a_server_is_shown_without_the_password(
    main: Command, postgres: str, user: str, database: str, answer: str
) -> None:
    _, _, host = postgres.partition("?")
    done = main("uploads", "list", DATABASE_URL=f"postgresql://{user}:hunter2@/{database}?{host}")
    assert sentence(done) == f"DATABASE_URL: the server answered: {answer}."


@pytest.mark.parametrize("url", ["garbage", "mysql://u:hunter2@h/x", "postgresql://u:hunter2%zz@h/x"])
def test_an_invalid_url_is_reported_without_quoting_it(main: Command, url: str) -> None:
    assert sentence(main("uploads", "list", DATABASE_URL=url)) == (
        "DATABASE_URL: expected postgresql://user@host/database, got something else."
    )


def test_an_unavailable_server_is_reported_without_its_address(main: Command) -> None:
    done = main("uploads", "list", DATABASE_URL="postgresql://u:hunter2@127.0.0.1:1/x")
    assert sentence(done) == (
        "DATABASE_URL: no Postgres answers there (Connection refused). "
        "Check that it is running and that the address is correct."
    )


def test_an_impossible_home_folder_is_reported(main: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home, reason in (
        ("/proc/x", "No such file or directory"),
        (str(tmp_path / "file"), "it is a file"),
        (str(tmp_path / "file" / "x"), "Not a directory"),
    ):
        expected = f"WEIGHBRIDGE_HOME: expected a folder where Weighbridge may write, got {home} ({reason})."
        assert sentence(main("uploads", "list", WEIGHBRIDGE_HOME=home)) == expected


@pytest.mark.parametrize(
    ("module", "text", "told"),
    [
        ("syntax", "x = 1\ndef f(:\n", "SyntaxError: invalid syntax ({file}, line 2)"),
        (
            "raising",
            "\n\nint('x')\n",
            "ValueError: invalid literal for int() with base 10: 'x' ({file}, line 3)",
        ),
        ("ending", "raise SystemExit(3)\n", "SystemExit: 3 ({file}, line 1)"),
        ("lacking", "import no_such\n", "No module named 'no_such' ({file}, line 1)"),
        (
            "declaring",
            "from weighbridge import Entity, Field\nEntity(table='x', key=['a'], fields=[Field('b', str)])\n",
            "Entity x: key 'a' is not a field ({file}, line 2)",
        ),
    ],
)
def test_an_error_in_a_user_module_is_reported_with_its_line(
    main: Command, tmp_path: Path, module: str, text: str, told: str
) -> None:
    file = tmp_path / f"trouble_{module}.py"
    file.write_text(text)
    for setting, named in (
        ("WEIGHBRIDGE_PIPELINES", file.stem),
        ("WEIGHBRIDGE_ALERT_HOOK", f"{file.stem}:hook"),
    ):
        done = main("uploads", "list", **{setting: named})
        assert sentence(done) == f"{setting}: cannot import '{file.stem}': {told.format(file=file)}."


def test_an_output_that_cannot_be_written_is_reported(
    weighbridge: Command, main: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(ROW)
    upload_id = main("load", tmp_path / "a.csv", "--platform", "meta", "--json").json["upload_id"]
    refused = main("uploads", "rejects", upload_id, "--out", tmp_path / "nowhere" / "x.csv")
    assert (
        sentence(refused) == f"{tmp_path}/nowhere/x.csv cannot be written or read: No such file or directory."
    )
    for command in (["rejects", upload_id], ["show", upload_id], ["list", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [prefork.command(), "uploads", *command],
                env=environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            )  # fmt: skip
        told = "weighbridge: The output cannot be written or read: No space left on device.\n"
        assert (done.returncode, done.stderr) == (1, told)


def test_a_file_that_cannot_be_moved_is_still_received(weighbridge: Command, tmp_path: Path) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    (folder / "a.csv").write_text(ROW)
    (tmp_path / "drop" / "received").symlink_to("/proc/no")  # nothing can be made there, not even by root
    options = ("--platform", "meta", "--once", "--move", "--settle", "0.1", "--json")
    for events in (["received", "completed"], ["duplicate"]):
        done = weighbridge("watch", folder, *options)
        assert done.code == 0
        assert [json.loads(line)["event"] for line in done.out.splitlines()] == events
        assert done.err.startswith("weighbridge: a.csv could not be moved to received/ and stays in place: ")
        assert done.err.count("\n") == 1
    assert (folder / "a.csv").read_text() == ROW


def test_putting_aside_what_is_gone_leaves_no_empty_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "a.csv"
    assert put_aside(gone, "received") == gone
    assert list((tmp_path / "received").iterdir()) == []
    assert "a.csv could not be moved to received/" in capsys.readouterr().err


def test_a_port_in_use_is_reported_with_the_option_for_another(main: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = main("api", "--port", port).err.splitlines()[-1]
    assert told.startswith(f"weighbridge: The API cannot listen on 127.0.0.1:{port}: Address already in use.")
    assert "--port" in told


def test_an_option_out_of_its_range_is_wrong_usage(main: Command, tmp_path: Path) -> None:
    for arguments in (
        ["keys", "create", "--days", "99999999"],
        ["api", "--port", "70000"],
        *(["watch", tmp_path, "--once", "--settle", settle] for settle in ("nan", "-1", "3601")),
    ):
        assert main(*arguments).code == 2, arguments


def test_the_version_is_printed(main: Command) -> None:
    assert main("--version").out == f"weighbridge {__version__}\n"


def test_an_upload_is_shown_for_people_whole_and_without_pythons_marks(main: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROW + "2025-01-02,Spring,abc\n")
    failed = main("load", tmp_path / "a.csv", "--platform", "meta", "--json").json["upload_id"]
    [listed] = main("uploads", "list", "--json").json
    assert (listed["upload_id"], listed["error_code"]) == (failed, "too_many_invalid_rows")
    main("load", tmp_path / "a.csv", "--platform", "meta", "--force-partial")
    shown = main("uploads", "show", main("uploads", "list", "--json").json[0]["upload_id"]).out
    lines = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert lines["bins"].startswith("preamble 0, header 1, blank 0")
    assert lines["campaign:"].startswith("table campaigns, failed 0")
    assert len(lines["file_url"].rpartition("/")[2]) == 64
    assert lines["reasons"].startswith("1 × bad_amount, first in line 3: ")
    of_ours = "".join(line for line in shown.splitlines() if "Warning (" not in line)  # those quote the file
    assert not set("{}'") & set(of_ours.replace("'abc'", ""))
