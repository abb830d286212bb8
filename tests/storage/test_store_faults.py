"""A bucket that fails: the file stays in place, once, and the failure is temporary."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.storage.proxy import Proxy
from tests.storage.s3 import S3
from weighbridge.model.errors import RetryLater
from weighbridge.storage.blobs import BlobMissing, Blobs
from weighbridge.storage.store import open_store

REQUEST_TIMEOUT = timedelta(seconds=1)
SMALL, LARGE = 1000, 12 * 2**20  # one request; several parts, and two requests around them

MakeFile = Callable[[int], Path]


def a_key() -> str:
    return f"{uuid4()}/2025/01/31/{os.urandom(32).hex()}"


@pytest.fixture
def store(s3: S3, line: Proxy, home: Path, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """The bucket, over a connection that can fail."""
    return reached(s3, line.port, home, monkeypatch)


@pytest.fixture
def full(small_s3: S3, home: Path, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """A bucket without space."""
    small_s3.fill()
    return reached(small_s3, small_s3.port, home, monkeypatch)


def reached(s3: S3, port: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    for name, value in s3.environment(port).items():
        monkeypatch.setenv(name, value)
    return open_store(s3.bucket_url, home, request_timeout=REQUEST_TIMEOUT)


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    def make_file(size: int) -> Path:
        path = tmp_path / f"file-{uuid4().hex}"
        path.write_bytes(os.urandom(size))
        return path

    return make_file


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_healthy_bucket_has_every_stored_file(
    s3: S3, store: Blobs, make_file: MakeFile, size: int
) -> None:
    file, key = make_file(size), a_key()
    digest = hashlib.sha256(file.read_bytes()).digest()
    assert await store.put(key, file) == f"{s3.bucket_url}/{key}"
    assert not file.exists()
    assert s3.stored == {key: size}
    assert await store.digest(key) == digest


async def test_a_local_file_can_be_kept_after_it_is_stored(s3: S3, store: Blobs, make_file: MakeFile) -> None:
    file, key = make_file(SMALL), a_key()
    await store.put(key, file, keep=True)
    assert file.stat().st_size == s3.stored[key] == SMALL


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_file_is_kept_when_the_store_is_killed_and_stored_when_it_is_back(
    s3: S3, line: Proxy, store: Blobs, make_file: MakeFile, size: int
) -> None:
    file, key = make_file(size), a_key()
    line.hang(after=size // 2)
    putting = asyncio.create_task(store.put(key, file))
    assert await asyncio.to_thread(line.stuck.wait, 10)
    s3.kill()
    line.mend()
    with pytest.raises(RetryLater, match="cannot be used now"):
        await putting
    with pytest.raises(RetryLater):  # no server at all
        await store.put(key, file)
    assert file.stat().st_size == size
    s3.start()
    assert s3.stored == {}
    await store.put(key, file)
    assert s3.stored == {key: size}


async def test_a_file_is_kept_when_the_connection_breaks(
    s3: S3, line: Proxy, store: Blobs, make_file: MakeFile
) -> None:
    file = make_file(LARGE)
    line.cut(after=LARGE // 2, times=None)
    with pytest.raises(RetryLater):
        await store.put(a_key(), file)
    assert file.stat().st_size == LARGE
    assert s3.stored == {}


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_hanging_store_times_out_after_store_seconds(
    s3: S3, store: Blobs, make_file: MakeFile, size: int
) -> None:
    file = make_file(size)
    s3.stop()
    began = time.monotonic()
    with pytest.raises(RetryLater):
        await store.put(a_key(), file)
    assert time.monotonic() - began < REQUEST_TIMEOUT.total_seconds() + 1
    assert file.exists()
    s3.go_on()
    await store.put(a_key(), file)
    assert not file.exists()


async def test_a_store_that_stops_responding_times_out_too(
    s3: S3, line: Proxy, store: Blobs, make_file: MakeFile
) -> None:
    """After twice as long at most: it is told to forget the parts that it has, and does not answer that either."""
    file = make_file(LARGE)
    line.hang(after=LARGE // 2)
    began = time.monotonic()
    with pytest.raises(RetryLater):
        await store.put(a_key(), file)
    assert time.monotonic() - began < 2 * REQUEST_TIMEOUT.total_seconds() + 1
    assert file.exists()


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize(("body", "kind"), [(None, "rate_limit"), (b"Service Unavailable", "connection")])
async def test_a_store_that_answers_503_is_called_once(
    s3: S3, line: Proxy, store: Blobs, make_file: MakeFile, size: int, body: bytes | None, kind: str
) -> None:
    file = make_file(size)
    line.refuse() if body is None else line.refuse(503, body)
    with pytest.raises(RetryLater) as trouble:
        await store.put(a_key(), file)
    assert trouble.value.kind == kind
    assert len(line.requests) == 1
    assert file.exists()
    line.mend()
    await store.put(a_key(), file)
    assert list(s3.stored.values()) == [size]


async def test_a_part_that_is_refused_is_not_sent_again(
    line: Proxy, store: Blobs, make_file: MakeFile
) -> None:
    """Its only later request aborts the other parts."""
    file = make_file(LARGE)
    line.hang(after=LARGE // 2)
    putting = asyncio.create_task(store.put(a_key(), file))
    assert await asyncio.to_thread(line.stuck.wait, 10)
    before = len(line.requests)
    line.refuse()
    with pytest.raises(RetryLater):
        await putting
    parts = [request for request in line.requests if "partNumber=" in request]
    assert len(parts) == len(set(parts))
    assert [r.partition(" ")[0] for r in line.requests[before:] if "partNumber=" not in r] in ([], ["DELETE"])


@pytest.mark.parametrize("size", [SMALL, 6 * 2**20])
async def test_a_file_is_kept_when_the_disk_is_full_and_stored_when_there_is_space(
    small_s3: S3, full: Blobs, make_file: MakeFile, size: int
) -> None:
    file, key = make_file(size), a_key()
    with pytest.raises(RetryLater, match="cannot be used now"):
        await full.put(key, file)
    assert file.stat().st_size == size
    assert small_s3.stored == {}
    small_s3.make_room()
    await full.put(key, file)
    assert small_s3.stored == {key: size}


async def test_the_digest_is_that_of_the_stored_bytes(s3: S3, store: Blobs, make_file: MakeFile) -> None:
    file, key = make_file(SMALL), a_key()
    await store.put(key, file)
    (s3.folder / "weighbridge" / "uploads" / key).write_bytes(b"x" * SMALL)
    assert await store.digest(key) == hashlib.sha256(b"x" * SMALL).digest()
    with pytest.raises(BlobMissing, match="missing"):
        await store.digest(a_key())


async def test_a_digest_without_a_response_is_retried_later(
    line: Proxy, store: Blobs, make_file: MakeFile
) -> None:
    key = a_key()
    await store.put(key, make_file(SMALL))
    line.refuse(500, b"")
    with pytest.raises(RetryLater):
        await store.digest(key)


async def test_the_listing_has_every_blob_and_nothing_else(s3: S3, store: Blobs, make_file: MakeFile) -> None:
    keys = sorted(a_key() for _ in range(3))
    for number, key in enumerate(keys):
        await store.put(key, make_file(SMALL + number))
    (s3.folder / "weighbridge" / "uploads" / "README").write_text("not ours")
    expected = [(key, SMALL + number) for number, key in enumerate(keys)]
    assert sorted([each async for each in store.listing()]) == expected
    workspace = keys[1][:36]
    assert [each async for each in store.listing(UUID(workspace))] == [expected[1]]


async def test_a_listing_without_a_response_is_retried_later(s3: S3, store: Blobs) -> None:
    s3.kill()
    with pytest.raises(RetryLater):
        [each async for each in store.listing()]


async def test_a_blob_can_be_deleted_twice(s3: S3, line: Proxy, store: Blobs, make_file: MakeFile) -> None:
    one, other = a_key(), a_key()
    for key in (one, other):
        await store.put(key, make_file(SMALL))
    for _ in range(2):
        await store.delete(one)
    assert list(s3.stored) == [other]
    line.refuse()
    with pytest.raises(RetryLater):
        await store.delete(other)
    assert list(s3.stored) == [other]


ONE_PUT = """
import asyncio, sys
from pathlib import Path
from weighbridge.storage.store import open_store
asyncio.run(open_store(sys.argv[1], Path(".")).put(sys.argv[2], Path(sys.argv[3]), keep=True))
"""


async def test_a_process_can_exit_right_after_it_stored_a_file(s3: S3, store: Blobs, tmp_path: Path) -> None:
    """The threads of obstore crashed one process in six."""
    file = tmp_path / "file"
    file.write_bytes(b"x" * SMALL)

    async def ends() -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ONE_PUT, s3.bucket_url, a_key(), str(file)
        )
        return await process.wait()

    for _ in range(5):
        assert await asyncio.gather(*(ends() for _ in range(4))) == [0, 0, 0, 0]


# In a process of its own: what another test made large does not count.
PUT = """
import asyncio, re, sys
from pathlib import Path
from weighbridge.storage.store import open_store

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

async def main():
    store = open_store(sys.argv[1], Path("."))
    await store.put(sys.argv[2], Path(sys.argv[4]))
    before = peak()
    await store.put(sys.argv[3], Path(sys.argv[5]))
    print(peak() - before)

asyncio.run(main())
"""


async def test_a_large_file_is_stored_in_little_memory(s3: S3, store: Blobs, tmp_path: Path) -> None:
    first, large = tmp_path / "first", tmp_path / "large"
    first.write_bytes(b"x" * SMALL)
    with large.open("wb") as file:
        file.truncate(100 * 2**20)
    key = a_key()
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PUT, s3.bucket_url, a_key(), key, str(first), str(large)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert s3.stored[key] == 100 * 2**20
    assert int(done.stdout) < 60 * 1024  # 25 to 35 MB were seen; all of it would be 100
