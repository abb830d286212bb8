"""A folder that files are dropped into: whole files, each once."""

from __future__ import annotations

from pathlib import Path

from weighbridge.cli.uploads.complete_files import Folder, put_aside


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def test_a_file_is_handed_out_once_when_it_no_longer_changes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, settle=0)
    file = tmp_path / "a.csv"
    file.write_text("a")
    assert folder.ready() == []  # the first look
    file.write_text("a,b")
    assert folder.ready() == []  # it has grown
    assert folder.unsettled
    assert folder.ready() == [file]
    assert folder.ready() == []
    assert not folder.unsettled


def test_a_file_that_changes_later_is_handed_out_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path, settle=0)
    file = tmp_path / "a.csv"
    file.write_text("a")
    folder.ready()
    assert folder.ready() == [file]
    file.write_text("a,b")
    folder.ready()
    assert folder.ready() == [file]


def test_a_file_that_is_given_back_is_handed_out_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path, settle=0)
    (tmp_path / "a.csv").write_text("a")
    folder.ready()
    for _ in range(2):
        [file] = folder.ready()
        folder.give_back(file)
        assert folder.ready() == []
    assert folder.ready() == [file]


def test_a_file_must_rest_before_it_counts_as_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path, settle=3600)
    (tmp_path / "a.csv").write_text("a")
    assert folder.ready() == folder.ready() == folder.ready() == []


def test_unfinished_hidden_and_other_things_are_left_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path, settle=0)
    for name in (".hidden.csv", "a.csv.part", "b.CRDOWNLOAD", "c.tmp", "d.csv~"):
        (tmp_path / name).write_text("x")
    (tmp_path / "sub.csv").mkdir()
    (tmp_path / "good.csv").write_text("x")
    folder.ready()
    assert names(folder.ready()) == ["good.csv"]


def test_a_download_that_is_renamed_into_place_is_handed_out(tmp_path: Path) -> None:
    folder = Folder(tmp_path, settle=0)
    (tmp_path / "a.csv.part").write_text("x")
    assert folder.ready() == []
    (tmp_path / "a.csv.part").rename(tmp_path / "a.csv")
    folder.ready()
    assert names(folder.ready()) == ["a.csv"]


def test_putting_aside_overwrites_nothing(tmp_path: Path) -> None:
    moved = []
    for content in ("first", "second", "third"):
        file = tmp_path / "a.csv"
        file.write_text(content)
        moved.append(put_aside(file, "received"))
    assert names(moved) == ["a.csv", "a.1.csv", "a.2.csv"]
    assert [file.read_text() for file in moved] == ["first", "second", "third"]
    assert not (tmp_path / "a.csv").exists()
