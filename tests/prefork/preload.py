"""Everything that a command imports, imported before a process is forked for it."""

from __future__ import annotations

import atexit
import gc
import importlib
import pkgutil

# Imported by libraries at their first use.
LATER = [
    "numpy.ma",
    "numpy.random",
    "psycopg_binary._uuid",
    "rich._emoji_codes",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
]


def preload() -> None:
    import weighbridge

    for each in pkgutil.walk_packages(weighbridge.__path__, "weighbridge."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
    for name in LATER:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # of another version of the library: it only costs time
    importlib.import_module("weighbridge.cli.root").command()  # built once
    gc.collect()
    atexit.register(gc.unfreeze)  # or extension modules report at exit that their objects are left
    gc.freeze()  # the collector would write to, and thereby copy, every page of a child's memory


preload()
