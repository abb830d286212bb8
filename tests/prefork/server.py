"""Imports everything that a command can need, and forks a child for each command that a client sends.

It has one thread and no event loop, so that a child is as complete as a process that has just imported its modules.
It ends when its standard input is closed, which is also when the test process dies.
"""

from __future__ import annotations

import array
import atexit
import fcntl
import io
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

CLIENT_DIED = signal.SIGKILL  # so that its command dies with it
BEYOND = 200  # above the numbers that a shell uses for files


@dataclass(frozen=True)
class Request:
    argv: tuple[str, ...]
    folder: str
    environment: dict[bytes, bytes]
    numbers: list[int]  # of the client's open files
    files: list[int]  # the same files in this process
    ignored: list[int]  # signals
    umask: int


class Server:
    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._clients: dict[int, socket.socket] = {}  # by their child's process
        self._wake, wakes = socket.socketpair()
        self._wakes = wakes
        wakes.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for each in (self._listener, self._wake, sys.stdin):
            self._selector.register(each, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes.fileno())

    def next(self) -> Request | None:
        """Returns a request in each child, and None in the server when it shall end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    for child in self._clients:
                        os.kill(child, signal.SIGTERM)
                    return None
                if key.fileobj is self._wake:
                    self._wake.recv(4096)
                    self._reap()
                elif key.fileobj is self._listener:
                    if request := self._accept():
                        return request
                elif key.fileobj in self._clients.values():
                    self._forward(key.data, key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> Request | None:
        client = self._listener.accept()[0]
        request = received(client)
        child = os.fork()
        if not child:
            client.close()
            self._leave()
            return request
        for each in request.files:
            os.close(each)
        self._clients[child] = client
        self._selector.register(client, selectors.EVENT_READ, child)
        return None

    def _leave(self) -> None:
        """In the child: it has nothing of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._selector, self._listener, self._wake, self._wakes, *self._clients.values()):
            each.close()

    def _forward(self, child: int, client: socket.socket) -> None:
        """Signals that the client received, one byte each."""
        try:
            numbers = client.recv(64)
        except ConnectionError:
            numbers = b""
        if not numbers:
            self._selector.unregister(client)
        for number in numbers or [CLIENT_DIED]:
            os.kill(child, number)  # it exists, perhaps as a zombie, until it is reaped here

    def _reap(self) -> None:
        for child in list(self._clients):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                client = self._clients.pop(child)
                with suppress(KeyError):
                    self._selector.unregister(client)
                with suppress(OSError):  # the client died first
                    client.sendall(status.to_bytes(4, "big"))
                client.close()


def received(client: socket.socket) -> Request:
    files = array.array("i")
    head, extra, _, _ = client.recvmsg(4, socket.CMSG_LEN(253 * files.itemsize))
    for _, _, data in extra:
        files.frombytes(data)
    size = int.from_bytes(head, "big")
    body = b""
    while len(body) < size:
        body += client.recv(size - len(body))
    argv, folder, environment, numbers, ignored, umask = marshal.loads(body)
    return Request(argv, folder, environment, numbers, list(files), ignored, umask)


def become(request: Request) -> None:
    """Make this process what a new one would be that the client's shell had started."""
    os.setpgid(0, 0)
    os.umask(request.umask)
    os.chdir(request.folder)
    os.environb.clear()
    os.environb.update(request.environment)
    time.tzset()
    place(request.files, request.numbers)
    sys.stdin = sys.__stdin__ = opened(0, "r")
    sys.stdout = sys.__stdout__ = opened(1, "w")
    sys.stderr = sys.__stderr__ = opened(2, "w")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in request.ignored:
        signal.signal(each, signal.SIG_IGN)
    sys.argv = list(request.argv)


def place(files: list[int], numbers: list[int]) -> None:
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, BEYOND) for each in files]
    for each in files:
        os.close(each)
    for each in {0, 1, 2} - set(numbers):
        os.close(each)
    for each, number in zip(moved, numbers, strict=True):
        os.dup2(each, number)
        os.close(each)


def opened(number: int, mode: str) -> io.TextIOWrapper | None:
    """As the interpreter opens its standard files; None if the shell has closed it."""
    try:
        is_terminal = os.isatty(number)
        buffered = open(number, f"{mode}b", closefd=False)  # noqa: SIM115
    except OSError:
        return None
    errors = "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(buffered, "utf-8", errors, line_buffering=is_terminal or number == 2)


def run() -> NoReturn:
    """The installed command's end, without taking down all modules, which would cost 0.3 s."""
    from weighbridge.cli import main

    code: object = 1
    try:
        code = main()  # type: ignore[func-returns-value]
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for each in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            each.flush()
    os._exit((code or 0) & 0xFF)


def main(address: str, bin_: str) -> NoReturn:
    sys.path.insert(0, bin_)  # as for the installed command, which is a script there
    runpy.run_path(f"{os.path.dirname(__file__)}/preload.py")
    if os.path.exists("/proc/self/task"):
        assert len(os.listdir("/proc/self/task")) == 1, "a module starts a thread when it is imported"
    server = Server(address)
    os.write(1, b"ready\n")
    request = server.next()
    if request is None:
        os._exit(0)
    become(request)
    run()


if __name__ == "__main__":
    main(*sys.argv[1:])
