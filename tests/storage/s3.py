"""A real S3 server in a process of its own, rclone's, that tests kill, freeze, fill up and start again.

with S3(tmp_path) as s3:                        running; the bucket `weighbridge` is there and empty
    environment |= s3.environment()             AWS's own variables, for a client that goes there directly,
    environment |= s3.environment(proxy.port)   or over a line that a test spoils (proxy.py)
    open_store(s3.bucket_url, home)
    s3.kill(), s3.start()                       gone at once, and back with all that it had stored
    s3.stop(), s3.go_on()                       frozen: connections are taken, nobody answers

with S3(tmp_path, size="8m") as s3:             on a small disk of its own, which is gone with the process
    s3.fill()                                   until nothing fits
    s3.make_room()
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

BUCKET = "weighbridge"
_RCLONE = Path(sys.executable).parent / "rclone"
_FILLER = "filler"


class S3:
    bucket_url = f"s3://{BUCKET}/uploads"

    def __init__(self, folder: Path, *, size: str | None = None) -> None:
        """Serves `folder`, or a file system of this size that nobody else sees, mounted there."""
        self.folder = folder
        self._size = size
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def environment(self, port: int | None = None) -> dict[str, str]:
        """What a client needs to know, by AWS's names."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """On the same port as before, with the same files."""
        assert self._process is None
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [
            _RCLONE,
            "serve",
            "s3",
            "--auth-key",
            "key,secret",
            "--config",
            "/dev/null",
        ]
        command += ["--addr", f"127.0.0.1:{self.port}", self.folder]
        if self._size:
            # Root in there is whoever runs the tests out here.
            mounted = f'mount -t tmpfs -o size={self._size} tmpfs "$0" && mkdir "$0/{BUCKET}" && exec "$@"'
            command = ["unshare", "-Urm", "sh", "-c", mounted, self.folder, *command]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, "the S3 server ended at once"
                assert time.monotonic() < give_up
                time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: whatever it was doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(10)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, what)

    @property
    def stored(self) -> dict[str, int]:
        """Key and size of everything in the bucket, under the prefix of `bucket_url`."""
        root = Path(f"/proc/{self._process.pid}/root") if self._size and self._process else Path("/")
        folder = root / (self.folder / BUCKET / "uploads").relative_to("/")
        return {
            path.relative_to(folder).as_posix(): path.stat().st_size
            for path in folder.rglob("*")
            if path.is_file() and not path.name.startswith(".")  # parts of a file that is not whole
        }

    def fill(self) -> None:
        """Until there is no room for a byte more."""
        store, count = self._store(), 0
        for size in (1 << 20, 1 << 16, 1 << 12):
            while True:
                count += 1
                try:
                    store.put(f"{_FILLER}/{count}", b"x" * size, use_multipart=False)
                except Exception:  # obstore has many for one answer
                    break

    def make_room(self) -> None:
        store = self._store()
        for page in store.list(prefix=f"{_FILLER}/"):
            store.delete([found["path"] for found in page])

    def _store(self) -> Any:
        from obstore.store import S3Store

        names = {name.lower(): value for name, value in self.environment().items()}
        options = {"allow_http": True}
        names.pop("aws_allow_http")
        return S3Store(BUCKET, config=names, client_options=options, retry_config={"max_retries": 0})

    def close(self) -> None:
        self.kill()

    def __enter__(self) -> S3:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()
