"""Long-running processes: `worker`, `api`, and `up`, which runs both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import read_settings, run
from weighbridge.cli.output import err
from weighbridge.cli.stopping import API_SECONDS, on_stop

if TYPE_CHECKING:
    import uvicorn

    from weighbridge.app import App
    from weighbridge.engine.options import WorkerOptions
    from weighbridge.settings import Settings

Host = Annotated[
    str | None,
    typer.Option("--host", help="Address to listen on. Default: WEIGHBRIDGE_HOST.", metavar="ADDRESS"),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="Port to listen on. Default: WEIGHBRIDGE_PORT.", metavar="PORT"
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port", min=0, max=65535, help="Serve Prometheus metrics on this port.", metavar="PORT"
    ),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", help="Address to serve metrics on.", metavar="ADDRESS")
]


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogLevel = Annotated[
    Level, typer.Option("--log-level", help="Minimum level of log messages.", metavar="|".join(Level))
]


def worker(
    parse: Annotated[bool, typer.Option("--parse/--no-parse", help="Parse, check and stage uploads.")] = True,
    promote: Annotated[
        bool, typer.Option("--promote/--no-promote", help="Write staged uploads to production.")
    ] = True,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log_level: LogLevel = Level.INFO,
) -> None:
    """Process uploads and deliver conversions until stopped. Any number of workers can run."""
    if not (parse or promote):
        raise typer.BadParameter(
            "--no-parse and --no-promote cannot be combined: the worker would have nothing to do"
        )
    with measured(metrics_host, metrics_port):
        _serve(log_level, {}, api=False, work={"parses": parse, "promotes": promote})


def api(host: Host = None, port: Port = None, log_level: LogLevel = Level.INFO) -> None:
    """Serve the HTTP API and the console. Run workers separately."""
    _serve(log_level, {"host": host, "port": port}, api=True, work=None)


def up(host: Host = None, port: Port = None, log_level: LogLevel = Level.INFO) -> None:
    """Run API, console and worker in one process and, without DATABASE_URL, the embedded Postgres."""
    _serve(log_level, {"host": host, "port": port}, api=True, work={})


def worker_options(settings: Settings, *, parses: bool = True, promotes: bool = True) -> WorkerOptions:
    from weighbridge.engine.options import WorkerOptions

    return WorkerOptions(
        slots=settings.worker_slots,
        per_workspace=settings.uploads_per_workspace,
        lease=settings.lease,
        ceiling=settings.processing_timeout,
        poll=timedelta(seconds=settings.poll_seconds),
        max_crashes=settings.max_crashes,
        alert_dead_letters=settings.alert_dead_letters,
        alert_backlog=settings.alert_backlog,
        alert_storage_queue=settings.alert_storage_queue,
        parses=parses,
        promotes=promotes,
    )


@contextmanager
def measured(host: str, port: int | None) -> Iterator[None]:
    """Serve the metrics of a process that has no API, if a port is given."""
    if port is None:
        yield
        return
    from weighbridge.observe.metrics import served

    with served(host, port) as address:
        err().print(f"Weighbridge serves metrics at {address}", markup=False, soft_wrap=True)
        yield


def _serve(log_level: str, overrides: dict[str, Any], *, api: bool, work: dict[str, bool] | None) -> None:
    from weighbridge.app import open_app
    from weighbridge.observe.traces import exported

    settings = read_settings(log_level)
    settings = settings.model_copy(
        update={name: value for name, value in overrides.items() if value is not None}
    )

    async def inside() -> None:
        stop = asyncio.Event()
        limit = settings.stop_seconds
        on_stop(stop.set, limit if work is not None else min(limit, API_SECONDS))
        async with open_app(settings, serves=True) as app:
            parts: list[Awaitable[None]] = []
            parts.append(_work(app, work, stop) if work is not None else _replay(app, stop))
            if work is not None and settings.deliver:
                parts.append(_deliver(app, stop))
            if api:
                parts.append(_listen(app, stop))
            await _together(parts, stop)

    with exported("weighbridge"):
        run(inside)


async def _together(parts: list[Awaitable[None]], stop: asyncio.Event) -> None:
    """Run all parts until stopped. A part that ends early stops the others, and its error is raised."""

    async def part(each: Awaitable[None]) -> None:
        try:
            await each
        finally:
            stop.set()

    for result in await asyncio.gather(*map(part, parts), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _work(app: App, steps: dict[str, bool], stop: asyncio.Event) -> None:
    from weighbridge.worker import Worker

    await Worker(app.ctx, worker_options(app.settings, **steps)).run(stop)


async def _deliver(app: App, stop: asyncio.Event) -> None:
    import structlog

    from weighbridge.delivery.deliverer import Deliverer, collect_less

    if app.ctx.outbound is None:
        structlog.get_logger().info(
            "No conversion is delivered here", reason="WEIGHBRIDGE_VAULT_KEY is not set"
        )
        await stop.wait()
        return
    collect_less()
    options = worker_options(app.settings)
    await Deliverer(app.ctx, options.name, app.settings.deliver_limit, options.poll, options.max_crashes).run(
        stop
    )


async def _replay(app: App, stop: asyncio.Event) -> None:
    """Retry waiting files in an API process without a worker: only this machine can read its queue folder."""
    from weighbridge.worker import store_waiting_files

    await store_waiting_files(app.ctx, worker_options(app.settings), stop)


async def _listen(app: App, stop: asyncio.Event) -> None:
    import uvicorn
    from uvicorn.importer import import_from_string

    # Imported by name, as uvicorn does: the command line does not depend on the console.
    create: Callable[[App, asyncio.Event], Any] = import_from_string("weighbridge.console:create")
    config = uvicorn.Config(
        create(app, stop),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=10,
        lifespan="on",
    )
    with _bound(app.settings.host, app.settings.port) as bound:
        server = _server(config)
        serving = asyncio.create_task(server.serve([bound]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        stopping.cancel()
        await serving


def _bound(host: str, port: int) -> socket.socket:
    """Bind a socket. Not left to uvicorn, which exits the whole process if the address is in use."""
    from weighbridge.model.errors import ConfigError

    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"The API cannot listen on {host}:{port}: {error.strerror}. "
            "Choose another address with --port and --host, or WEIGHBRIDGE_PORT and WEIGHBRIDGE_HOST."
        ) from error
    return bound


def _server(config: uvicorn.Config) -> uvicorn.Server:
    import contextlib
    from collections.abc import Generator

    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield  # we handle signals: the worker and the embedded Postgres must shut down in order, too

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            name, port = (sockets or [])[0].getsockname()[:2]
            shown = f"[{name}]" if ":" in name else name
            err().print(f"Weighbridge listens on http://{shown}:{port}", markup=False, soft_wrap=True)

    return Server(config)
