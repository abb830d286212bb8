"""The `weighbridge` of a shell: pass the command to the server, forward signals, end as the command ends.

It is started with -I and -S, and imports little, so that it costs 20 ms.
"""

import array
import marshal
import os
import signal
import socket
import sys

FORWARDED = [
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
]


def main(address: str, *argv: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until the command can receive them
    ignored = [int(each) for each in FORWARDED if signal.getsignal(each) == signal.SIG_IGN]
    files = open_files()
    umask = os.umask(0)
    request = marshal.dumps((argv, os.getcwd(), dict(os.environb), files, ignored, umask))
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    server.sendmsg(
        [len(request).to_bytes(4, "big")],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))],
    )
    server.sendall(request)
    for each in FORWARDED:
        if each not in ignored:
            signal.signal(each, lambda number, _: server.send(bytes([number])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    ended = server.recv(4)
    if not ended:
        sys.exit("weighbridge: the server of tests/prefork has ended")
    end_as(int.from_bytes(ended, "big"))


def open_files() -> list[int]:
    """Also the ones of the shell's redirections beyond 2, such as 3> file and <(command)."""
    found = []
    for name in os.listdir("/dev/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue  # the listing itself
        found.append(int(name))
    return found


def end_as(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    if -code in FORWARDED:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


main(*sys.argv[1:])
