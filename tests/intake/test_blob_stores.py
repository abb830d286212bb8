"""Blob stores return the stored bytes, and every failure has one of two types. All stores pass the same tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.storage.s3 import S3
from weighbridge.model.errors import ConfigError, RetryLater
from weighbridge.storage.blobs import BlobMissing, Blobs
from weighbridge.storage.store import FolderStore, key_of, open_store

CONTENT = os.urandom(12 * 2**20)  # larger than one part of a multipart upload


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket of a real S3 server."""
    with S3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment().items():
            environment.setenv(name, value)
        yield server.bucket_url


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, home: Path) -> Blobs:
    url = request.getfixturevalue("bucket") if request.param == "bucket" else None
    return open_store(url, home)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def a_key() -> str:
    return f"{uuid4()}/2025/01/31/{os.urandom(32).hex()}"


async def test_what_is_put_can_be_fetched(store: Blobs, scratch: Path) -> None:
    file = scratch / "spooled"
    file.write_bytes(CONTENT)
    url = await store.put(a_key(), file)
    fetched = await store.fetch(url, scratch)
    assert fetched.read_bytes() == CONTENT
    assert fetched.stat().st_mode & 0o077 == 0


async def test_the_same_blob_twice_is_one_blob(store: Blobs, scratch: Path) -> None:
    key = a_key()
    urls = set()
    for _ in range(2):
        file = scratch / "spooled"
        file.write_bytes(b"the same")
        urls.add(await store.put(key, file))
    assert len(urls) == 1
    assert (await store.fetch(urls.pop(), scratch)).read_bytes() == b"the same"


async def test_a_blob_that_is_not_there_is_missing_and_leaves_no_file(store: Blobs, scratch: Path) -> None:
    with pytest.raises(BlobMissing):
        await store.fetch(f"file:///{a_key()}", scratch)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "file:///x/2025/01/31/../../../../etc/passwd"])
async def test_a_url_that_names_no_blob_of_ours_reads_nothing(store: Blobs, scratch: Path, url: str) -> None:
    with pytest.raises(BlobMissing):
        await store.fetch(url, scratch)


async def test_a_folder_can_be_moved(tmp_path: Path, scratch: Path) -> None:
    file = scratch / "spooled"
    file.write_bytes(b"moved")
    url = await FolderStore(tmp_path / "before").put(a_key(), file)
    (tmp_path / "before").rename(tmp_path / "after")
    assert (await FolderStore(tmp_path / "after").fetch(url, scratch)).read_bytes() == b"moved"


async def test_a_folder_on_another_file_system_takes_files_too(scratch: Path) -> None:
    root = Path("/dev/shm") / f"weighbridge-test-{uuid4().hex}"
    file = scratch / "spooled"
    file.write_bytes(b"far")
    try:
        url = await FolderStore(root).put(a_key(), file)
        stored = await FolderStore(root).fetch(url, scratch)
        assert stored.read_bytes() == b"far"
        assert [path for path in root.rglob("*") if path.is_file()] == [stored]
        assert not file.exists()
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def test_a_bucket_that_is_not_there_is_tried_again_later(
    bucket: str, scratch: Path, home: Path
) -> None:
    file = scratch / "spooled"
    file.write_bytes(b"x")
    store = open_store("s3://no-such-bucket", home)
    with pytest.raises(RetryLater, match="no such bucket"):
        await store.put(a_key(), file)
    assert file.exists()


async def test_a_server_that_does_not_answer_is_tried_again_later(
    scratch: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    store = open_store("s3://weighbridge", home)
    with pytest.raises(RetryLater, match="cannot be used now") as trouble:
        await store.fetch(f"s3://weighbridge/{a_key()}", scratch)
    assert trouble.value.kind == "connection"
    assert list(scratch.iterdir()) == []


def test_a_store_of_an_unknown_kind_is_a_wrong_setting(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a folder or s3://bucket/prefix, got 'ftp://…@x'"):
        open_store("ftp://me:hunter2@x", home)


def test_only_the_key_of_a_url_counts() -> None:
    key = a_key()
    assert key_of(f"s3://bucket/some/prefix/{key}") == key_of(f"file:///var/blobs/{key}") == key


def test_credentials_in_the_address_are_refused_and_not_repeated(tmp_path: Path) -> None:
    """The name of the bucket stands in logs and metrics."""
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID") as refused:
        open_store("s3://AKIA:hunter2@bucket/prefix", tmp_path)
    assert "hunter2" not in str(refused.value)
