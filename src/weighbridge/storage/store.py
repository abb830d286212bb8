"""Blobs in a folder or in an S3 bucket.

A blob's file_url is complete, for people; only the key at its end is used to fetch it, so that a folder can be moved
and a bucket copied without touching the database.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID, uuid4

from weighbridge.model.errors import ConfigError, RetryLater
from weighbridge.model.retry import STORE_READ_RETRIES, STORE_READ_TIME
from weighbridge.storage import files
from weighbridge.storage.blobs import BlobMissing, Blobs

if TYPE_CHECKING:
    from obstore.store import ClientConfig

T = TypeVar("T")

# Connection options of a bucket, by AWS's names in the environment.
_LINE = ("allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes")
_KEY = re.compile(r"(?:^|/)([0-9a-f-]{36}/\d{4}/\d\d/\d\d/[0-9a-f]{64})$")


def open_store(url: str | None, home: Path, request_timeout: timedelta = timedelta(seconds=30)) -> Blobs:
    """The store that `blob_url` names: a folder, file:///folder, s3://bucket/prefix. None: `home`/blobs.

    `request_timeout`: maximum time for a bucket to answer one request.
    """
    scheme, found, rest = (url or "").partition("://")
    if not found:
        return FolderStore(Path(url).expanduser().absolute() if url else home / "blobs")
    if scheme == "file":
        return FolderStore(Path(rest))
    if scheme == "s3":
        return BucketStore(url or "", request_timeout)
    raise ConfigError(
        f"WEIGHBRIDGE_BLOB_URL: expected a folder or s3://bucket/prefix, got {_shown(url or '')}."
    )


def _shown(url: str) -> str:
    """The URL without user name and password."""
    return repr(re.sub(r"//.*@", "//…@", url))


def key_of(file_url: str) -> str:
    """The key at the end of a file_url: workspace, date, content. BlobMissing for anything else."""
    found = _KEY.search(file_url)
    if found is None:
        raise _missing()
    return found.group(1)


class FolderStore:
    """Files under one folder, readable by the service alone.

    Plain system calls: obstore's local store copies instead of renaming, and does not sync to disk.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, file: Path, *, keep: bool = False) -> str:
        with _folder_trouble(self._root):
            await asyncio.to_thread(files.place, file, self._root / key, keep=keep)
        return (self._root / key).as_uri()

    async def fetch(self, file_url: str, scratch: Path) -> Path:
        path = self._root / key_of(file_url)
        with _folder_trouble(self._root):
            there = await asyncio.to_thread(path.is_file)
        if not there:
            raise await asyncio.to_thread(self._missing, path, file_url)
        return path

    async def digest(self, key: str) -> bytes:
        with _folder_trouble(self._root):
            try:
                return await asyncio.to_thread(files.sha256, self._root / key)
            except FileNotFoundError:
                raise _missing() from None

    async def listing(self, workspace_id: UUID | None = None) -> AsyncIterator[tuple[str, int]]:
        root = self._root / str(workspace_id) if workspace_id else self._root
        with _folder_trouble(self._root):
            found = await asyncio.to_thread(self._found, root)
        for each in found:
            yield each

    def _found(self, root: Path) -> list[tuple[str, int]]:
        there = ((path.relative_to(self._root).as_posix(), path.stat().st_size) for path in root.rglob("*"))
        return [(key, size) for key, size in there if _KEY.fullmatch(key)]

    async def delete(self, key: str) -> None:
        with _folder_trouble(self._root):
            await asyncio.to_thread((self._root / key).unlink, missing_ok=True)

    async def remove(self, workspace_id: UUID) -> None:
        folder = self._root / str(workspace_id)
        with _folder_trouble(self._root):
            if await asyncio.to_thread(folder.is_dir):
                await asyncio.to_thread(shutil.rmtree, folder)

    @property
    def bucket(self) -> str:
        return "local"

    @property
    def folder(self) -> Path | None:
        return self._root

    def _missing(self, path: Path, file_url: str) -> BlobMissing:
        """Lost, or never here: machines that share only the database see other folders, which looks like a loss."""
        if path.as_uri() != file_url or not self._root.is_dir():
            return _elsewhere()
        return _missing()


class BucketStore:
    """Objects in an S3 bucket. Credentials, region and endpoint come from the environment, by AWS's names.

    Uses obstore's blocking calls in our own threads, which Python waits for at exit: obstore's own threads complete its
    coroutines, and one that still does so when the process exits aborts it with SIGABRT.
    """

    def __init__(self, url: str, request_timeout: timedelta) -> None:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        if "@" in url.partition("://")[2].partition("/")[0]:
            raise ConfigError(
                f"WEIGHBRIDGE_BLOB_URL: expected s3://bucket/prefix, got {_shown(url)}. Credentials come from the "
                "environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        self._threads = ThreadPoolExecutor(16, "bucket")
        self._url = url.rstrip("/")
        self.bucket = self._url.removeprefix("s3://").partition("/")[0]
        try:
            # Tried once within the request: a file that cannot be stored goes to a queue of its own.
            self._store = S3Store.from_url(
                url,
                client_options=_client(request_timeout, timeout=request_timeout),
                retry_config={"max_retries": 0},
            )
            # Short: an upload that cannot reach the store goes back to the queue and is tried again from there. The
            # total time for a large blob is not limited, only the time without any answer.
            self._reader = S3Store.from_url(
                url,
                client_options=_client(
                    request_timeout, timeout=timedelta(days=1), read_timeout=request_timeout
                ),
                retry_config={"max_retries": STORE_READ_RETRIES, "retry_timeout": STORE_READ_TIME},
            )
        except BaseError as error:
            raise ConfigError(
                f"WEIGHBRIDGE_BLOB_URL: {_shown(url)} cannot be used: {_first_line(error).replace(url, _shown(url))}"
            ) from error

    async def put(self, key: str, file: Path, *, keep: bool = False) -> str:
        try:
            with _bucket_trouble():
                await self._run(self._store.put, key, file, max_concurrency=2)
        except BlobMissing as error:  # the parts of a multipart upload: the store was restarted meanwhile
            raise RetryLater("connection", "The file store cannot be used now.") from error
        if not keep:
            await asyncio.to_thread(file.unlink)
        return f"{self._url}/{key}"

    async def fetch(self, file_url: str, scratch: Path) -> Path:
        key = key_of(file_url)
        path = scratch / f"fetched-{uuid4().hex}"
        try:
            with _bucket_trouble(), files.private(path) as copy:
                async for chunk in self._chunks(key):
                    await asyncio.to_thread(copy.write, chunk)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, BlobMissing) and file_url != f"{self._url}/{key}":
                raise _elsewhere() from error
            raise
        return path

    async def digest(self, key: str) -> bytes:
        found = hashlib.sha256()
        with _bucket_trouble():
            async for chunk in self._chunks(key):
                found.update(chunk)
        return found.digest()

    async def listing(self, workspace_id: UUID | None = None) -> AsyncIterator[tuple[str, int]]:
        with _bucket_trouble():
            pages = self._reader.list(prefix=f"{workspace_id}/" if workspace_id else None)
            while page := await self._run(next, pages, None):
                for found in page:
                    if _KEY.fullmatch(found["path"]):
                        yield found["path"], found["size"]

    async def delete(self, key: str) -> None:
        with _bucket_trouble(), suppress(FileNotFoundError):
            await self._run(self._store.delete, key)

    async def remove(self, workspace_id: UUID) -> None:
        with _bucket_trouble():
            pages = self._reader.list(prefix=f"{workspace_id}/")
            while page := await self._run(next, pages, None):
                await self._run(self._store.delete, [found["path"] for found in page])

    async def _chunks(self, key: str) -> AsyncIterator[bytes]:
        stream = iter((await self._run(self._reader.get, key)).stream())
        while (chunk := await self._run(next, stream, None)) is not None:
            yield chunk

    async def _run(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **named))

    @property
    def folder(self) -> Path | None:
        return None


def _client(request_timeout: timedelta, **more: timedelta) -> ClientConfig:
    """Options of the connection to a bucket. They replace those that obstore reads from the environment."""
    named = {name: os.environ[f"AWS_{name.upper()}"] for name in _LINE if f"AWS_{name.upper()}" in os.environ}
    return cast(
        "ClientConfig", {"connect_timeout": min(request_timeout, timedelta(seconds=5)), **named, **more}
    )


# Senders read these messages too, so they do not name the place where the service stores its files.
def _missing() -> BlobMissing:
    return BlobMissing("The stored file is missing. Upload it again.")


def _elsewhere() -> BlobMissing:
    return BlobMissing(
        "The file is in another folder or bucket than the one this worker reads, perhaps on another machine. "
        "Set the same WEIGHBRIDGE_BLOB_URL on all machines (a shared folder, or s3://…), then retry the upload."
    )


@contextmanager
def _folder_trouble(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RetryLater("connection", f"The file store cannot be used now: {error.strerror}.") from error


@contextmanager
def _bucket_trouble() -> Iterator[None]:
    from obstore.exceptions import BaseError, NotFoundError

    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:  # obstore raises Python's own exception here
        if "NoSuchBucket" in str(error):
            raise RetryLater(
                "connection", "The file store cannot be used now: there is no such bucket."
            ) from error
        raise _missing() from error
    except BaseError as error:
        why = _why(error)
        kind = "rate_limit" if why == _SLOWLY else "connection"
        raise RetryLater(kind, f"The file store cannot be used now: {why}.") from error
    except OSError as error:
        raise RetryLater("connection", f"A scratch file cannot be written now: {error.strerror}.") from error


_SLOWLY = "it limits the request rate"
# Patterns over obstore's error, and the message for each, without addresses: the first match counts.
_REASONS = (
    (r"SlowDown|TooManyRequests|status: 429", _SLOWLY),
    (
        r"PermissionDenied|Unauthenticated|status: 40[13]",
        "it refuses the credentials or their permissions",
    ),
    (r"kind: Timeout", "it did not answer in time"),
    (r"dns error|failed to lookup", "its host name cannot be resolved"),
    (r"builder error", "an endpoint without TLS needs AWS_ALLOW_HTTP=true"),
    (r"kind: Connect", "the connection was refused"),
    (r"status: 5\d\d", "it reported an internal error"),
)


def _why(error: Exception) -> str:
    """The kind of failure in words: the error's own text contains addresses."""
    text = re.sub(r"https?://\S+", "", f"{type(error).__name__} {error}")
    return next((why for pattern, why in _REASONS if re.search(pattern, text)), "the request was interrupted")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
