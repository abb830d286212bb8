"""A real PgBouncer before a Postgres. `make test` installs one if needed, with `python -m tests.engine.pgbouncer`.

Without one, its tests fail with a sentence; they are never left out.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

NONE = "A PgBouncer is needed: apt install pgbouncer."


def find() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def install() -> str | None:
    apt = shutil.which("apt-get")
    if apt and os.geteuid() == 0:
        subprocess.run([apt, "update", "-qq"], stdout=sys.stderr, check=False)
        subprocess.run([apt, "install", "-qq", "--yes", "pgbouncer"], stdout=sys.stderr, check=False)
    return find()


@contextmanager
def pgbouncer(url: str, *, connections: int) -> Iterator[str]:
    """The URL of the same database, in transaction mode and with so many connections to the server."""
    program = find()
    assert program, NONE
    server = conninfo_to_dict(url)
    folder = Path(tempfile.mkdtemp(prefix="weighbridge-pgbouncer-"))
    port = _free_port()
    (folder / "users.txt").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={server['host']} user={server['user']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nlogfile = {folder}/log\n"
        f"auth_type = trust\nauth_file = {folder}/users.txt\npool_mode = transaction\n"
        f"default_pool_size = {connections}\nmax_client_conn = 200\nignore_startup_parameters = options\n"
    )
    # Not as root, which it refuses: as the owner of the server's socket.
    owner = os.stat(str(server["host"])).st_uid
    switch = ["-u", pwd.getpwuid(owner).pw_name] if os.geteuid() == 0 else []
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, owner) if switch else None
    process = subprocess.Popen([program, "-q", *switch, str(folder / "pgbouncer.ini")])
    try:
        _wait_for(port)
        yield f"postgresql://{server['user']}@127.0.0.1:{port}/{server['dbname']}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    give_up = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < give_up, "PgBouncer does not listen"
            time.sleep(0.02)


if __name__ == "__main__":
    if (find() or install()) is None:
        sys.stderr.write(f"{NONE}\n")
