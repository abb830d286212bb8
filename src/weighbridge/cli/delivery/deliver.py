"""`weighbridge deliver`: conversions on their way to ad platforms, until stopped, once, or only to try (S4)."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.running import AsJson, err, out, print_json, with_app
from weighbridge.cli.serve import measured, worker_options

if TYPE_CHECKING:
    from datetime import datetime

    from weighbridge.app import App
    from weighbridge.delivery.dry_run import Rehearsed
    from weighbridge.delivery.settle import Tally
    from weighbridge.model.delivery import Conversion, Outcome

ONE_RUN = 50  # S4's route has the same
_IN_THE_WAY = {
    "unknown_provider": "their provider is not known here",
    "not_in_use": "their provider was taken off the site: weighbridge sites change",
    "no_credentials": "without credentials: weighbridge providers credentials SITE PROVIDER",
    "credentials_refused": "their credentials were refused: enter new ones, or weighbridge providers reset",
    "credentials_unreadable": "their credentials cannot be read: weighbridge vault status",
    "provider_paused": "their provider asked for a pause",
    "circuit_open": "their circuit is open",
    "being_probed": "another worker probes them",
}


def deliver(
    once: Annotated[bool, typer.Option("--once", help="One run over what waits, and end.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, max=1_000_000, help=f"Conversions at most in a run; {ONE_RUN} for a single one."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Have the providers check what waits; nothing is kept or changed. Exit 1: they would refuse some.",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65535, help="Serve metrics to Prometheus on this port."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", help="The address to serve them on.")
    ] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Send conversions that wait to their providers, until told to stop; start as many as you like."""
    if dry_run:
        _rehearse(limit or ONE_RUN, as_json=as_json)
    elif once:
        _run_once(limit or ONE_RUN, as_json=as_json)
    elif as_json:
        raise typer.BadParameter("--json: expected --once or --dry-run beside it; what stays writes a log.")
    else:
        with measured(metrics_host, metrics_port):
            with_app(lambda app: _stay(app, limit), stays=True)


async def _stay(app: App, limit: int | None) -> None:
    """Until SIGTERM or SIGINT; calls that are under way then are seen through."""
    from weighbridge.delivery.outbound import outbound_of
    from weighbridge.delivery.worker import Deliverer, collect_less

    outbound_of(app.ctx)  # without the key it would only ever complain
    collect_less()
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    options = worker_options(app.settings)
    err().print("Weighbridge delivers.")
    await Deliverer(
        app.ctx, options.name, limit or app.settings.deliver_limit, options.poll, options.max_crashes
    ).run(stop)


def _run_once(limit: int, *, as_json: bool) -> None:
    async def work(app: App) -> tuple[Tally, datetime | None]:
        from weighbridge.delivery import overview
        from weighbridge.delivery.outbound import ROLE
        from weighbridge.delivery.run import deliver

        tally = await deliver(app.ctx, worker_options(app.settings).name, limit)
        if tally.processed:
            return tally, None
        async with app.db.tx(ROLE) as tx:
            return tally, await overview.next_due(tx)

    tally, due = with_app(work)
    if as_json:
        print_json({"ok": True, **vars(tally)})
        return
    if tally.processed:
        calls = f"{tally.calls:,} call{'' if tally.calls == 1 else 's'}" if tally.calls else "no call"
        told = f"{tally.completed:,} delivered, {tally.failed:,} failed, {tally.retry:,} to be tried again"
        out().print(f"{_conversions(tally.processed)} in {calls}: {told}.")
    else:
        out().print("Nothing was sent.")
    if tally.full:
        out().print(f"{tally.full:,} batch{'' if tally.full == 1 else 'es'} found no free slot.")
    if due is not None:
        out().print(f"The next of those that were put off is due {due:%Y-%m-%d %H:%M:%S %Z}.")
    _print_skipped(tally.skipped)
    if tally.failed:
        out().print("weighbridge conversions list --status FAILED says why they failed.")


def _rehearse(limit: int, *, as_json: bool) -> None:
    async def work(app: App) -> list[Rehearsed]:
        from weighbridge.delivery.dry_run import rehearse

        return await rehearse(app.ctx, limit)

    found = with_app(work)
    skipped = Counter(each.skipped for each in found if each.skipped)
    summary = _summary(found, skipped)
    if as_json:
        print_json(summary)
    else:
        for each in found:
            if not each.skipped:
                _print_rehearsed(each)
        if not summary["processed"]:
            out().print("There is nothing to send.")
        _print_skipped(skipped)
        out().print("Nothing was kept or changed.")
    if summary["failed"]:
        raise typer.Exit(1)


def _summary(found: list[Rehearsed], skipped: Counter[str]) -> dict[str, Any]:
    """The keys of a run, and what was said of each row."""
    verdicts = Counter(said.verdict.value for each in found for _, said in each.said)
    expired = sum(each.expired for each in found)
    return {
        "ok": True,
        "dry_run": True,
        "processed": verdicts.total() + expired,
        "completed": verdicts["COMPLETED"],
        "failed": verdicts["FAILED"] + expired,
        "retry": verdicts["RETRY"],
        "calls": sum(each.calls for each in found),
        "full": 0,
        "parked": 0,
        "skipped": skipped,
        "groups": [
            {
                "site_id": each.group.site_id,
                "provider": each.group.provider_key,
                "skipped": each.skipped,
                "expired": each.expired,
                "conversions": [_row(conversion, said) for conversion, said in each.said],
            }
            for each in found
        ],
    }


def _row(conversion: Conversion, said: Outcome) -> dict[str, Any]:
    return {
        "sale_id": conversion.id,
        "order_id": conversion.order_id,
        "status": _status(said),
        "provider_error_code": said.code,
        "provider_error_category": said.category and said.category.value,
        "message": said.message,
    }


def _status(said: Outcome) -> str:
    """OK: it would be taken. Nothing is COMPLETED by a dry run."""
    match said.verdict.value:
        case "COMPLETED":
            return "OK"
        case "FAILED":
            return said.code or "FAILED"
        case other:
            return other


def _print_rehearsed(each: Rehearsed) -> None:
    """A line for the group, one for each thing that was said of rows that are well, one for each row that is not."""
    verdicts = Counter(said.verdict.value for _, said in each.said)
    told = [
        f"{verdicts[name]:,} {words}"
        for name, words in (("COMPLETED", "well"), ("FAILED", "refused"), ("RETRY", "not to be had now"))
        if verdicts[name]
    ]
    if each.expired:
        told.append(f"{each.expired:,} expired")
    group = f"{each.group.provider_key} of {each.group.site_id}"
    out().print(f"{group}: {', '.join(told)}.", markup=False, soft_wrap=True)
    for message in dict.fromkeys(said.message for _, said in each.said if said.verdict.value == "COMPLETED"):
        if message:
            out().print(f"  {message}", markup=False, soft_wrap=True)
    for conversion, said in each.said:
        if said.verdict.value != "COMPLETED":
            code = f" {said.code}" if said.code and said.code != _status(said) else ""
            line = f"  {conversion.order_id}: {_status(said)}{code}: {said.message or ''}"
            out().print(line, markup=False, soft_wrap=True)


def _print_skipped(skipped: Counter[str]) -> None:
    for reason, count in sorted(skipped.items()):
        groups = f"{count:,} group{'' if count == 1 else 's'}"
        out().print(f"{groups} left out: {_IN_THE_WAY.get(reason, reason)}.", markup=False, soft_wrap=True)


def _conversions(count: int) -> str:
    return f"{count:,} conversion{'' if count == 1 else 's'}"
