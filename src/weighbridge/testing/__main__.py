"""`python -m weighbridge.testing meta_capi --port 0`: run a fake provider as a process, until it is stopped.

It prints its URL. GET /_fake/accepted, /_fake/seen and /_fake/counts return what it has accepted.
"""

from __future__ import annotations

import argparse
import signal
import sys

from weighbridge.testing.fake_providers import FAKES


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m weighbridge.testing", description=__doc__)
    parser.add_argument("provider", choices=sorted(FAKES))
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    asked = parser.parse_args(arguments)
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before the fake's thread starts, which inherits it
    with FAKES[asked.provider](port=asked.port, keep_calls=0) as fake:
        sys.stdout.write(f"{fake.url}\n")
        sys.stdout.flush()
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
