"""`weighbridge deliver`: deliver queued conversions, continuously, once or as a dry run."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import err, out, print_json
from weighbridge.cli.serve import MetricsHost, MetricsPort, measured, worker_options
from weighbridge.cli.stopping import on_stop
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from datetime import datetime

    from weighbridge.app import App
    from weighbridge.delivery.dry_run import DryRunResult
    from weighbridge.delivery.run_counts import RunCounts
    from weighbridge.model.delivery import Conversion, Outcome

ONE_RUN = 50  # the same default as the cron route
_BLOCKED_BY = {
    "unknown_provider": "the provider is unknown to this installation",
    "not_in_use": "the site no longer uses the provider: weighbridge sites change",
    "no_credentials": "no credentials: weighbridge providers credentials SITE PROVIDER",
    "credentials_refused": "the provider refused the credentials: store new ones, or run weighbridge providers reset",
    "credentials_unreadable": "the credentials cannot be read: weighbridge vault status",
    "provider_paused": "the provider requested a pause",
    "circuit_open": "the circuit is open",
    "being_probed": "another worker is sending a probe",
}


def deliver(
    once: Annotated[
        bool, typer.Option("--once", help="Deliver the queued conversions once, then exit.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            max=1_000_000,
            help="Maximum number of conversions per run. Default: WEIGHBRIDGE_DELIVER_LIMIT; "
            f"with --once or --dry-run {ONE_RUN}.",
            metavar="N",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Let the providers validate queued conversions without storing them. Exit code 1: some are refused.",
        ),
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Deliver queued conversions until stopped. Any number of processes can run."""
    if dry_run:
        _dry_run(limit or ONE_RUN, as_json=as_json)
    elif once:
        _run_once(limit or ONE_RUN, as_json=as_json)
    elif as_json:
        raise typer.BadParameter("--json requires --once or --dry-run; a continuous run writes a log.")
    else:
        with measured(metrics_host, metrics_port):
            with_app(lambda app: _run_until_stopped(app, limit), long_running=True)


async def _run_until_stopped(app: App, limit: int | None) -> None:
    """Run until SIGTERM or SIGINT; calls in flight are completed first."""
    from weighbridge.delivery.context import outbound_of
    from weighbridge.delivery.deliverer import Deliverer, collect_less

    outbound_of(app.ctx)  # fail now if the vault key is missing
    collect_less()
    stop = asyncio.Event()
    on_stop(stop.set, app.settings.stop_seconds)
    options = worker_options(app.settings)
    err().print("Weighbridge is delivering conversions.")
    await Deliverer(
        app.ctx, options.name, limit or app.settings.deliver_limit, options.poll, options.max_crashes
    ).run(stop)


def _run_once(limit: int, *, as_json: bool) -> None:
    async def work(app: App) -> tuple[RunCounts, datetime | None]:
        from weighbridge.delivery import queue
        from weighbridge.delivery.deliver import deliver
        from weighbridge.postgres import roles

        result = await deliver(app.ctx, worker_options(app.settings).name, limit)
        if result.processed:
            return result, None
        async with app.db.tx(roles.DELIVER) as tx:
            return result, await queue.next_due(tx)

    result, due = with_app(work)
    if as_json:
        print_json({"ok": True, **vars(result)})
        return
    if result.processed:
        calls = counted(result.calls, "call") if result.calls else "no call"
        counts = f"{result.completed:,} delivered, {result.failed:,} failed, {result.retry:,} to retry"
        out().print(f"{counted(result.processed, 'conversion')} in {calls}: {counts}.")
    else:
        out().print("Nothing was sent.")
    if result.full:
        out().print(f"{counted(result.full, 'batch', 'batches')} found no free slot.")
    if due is not None:
        out().print(f"The next retry is due at {due:%Y-%m-%d %H:%M:%S %Z}.")
    _print_skipped(result.skipped)
    if result.failed:
        out().print("For the reasons, run: weighbridge conversions list --status FAILED")


def _dry_run(limit: int, *, as_json: bool) -> None:
    async def work(app: App) -> list[DryRunResult]:
        from weighbridge.delivery.dry_run import dry_run

        return await dry_run(app.ctx, limit)

    found = with_app(work)
    skipped = Counter(each.skipped for each in found if each.skipped)
    summary = _summary(found, skipped)
    if as_json:
        print_json(summary)
    else:
        for each in found:
            if not each.skipped:
                _print_result(each)
        if not summary["processed"]:
            out().print("No conversions to send.")
        _print_skipped(skipped)
        out().print("Dry run: no conversion was stored or changed.")
    if summary["failed"]:
        raise typer.Exit(1)


def _summary(found: list[DryRunResult], skipped: Counter[str]) -> dict[str, Any]:
    """The fields of a run, and the outcome of each row."""
    verdicts = Counter(outcome.verdict.value for each in found for _, outcome in each.outcomes)
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
                "conversions": [_row(conversion, outcome) for conversion, outcome in each.outcomes],
            }
            for each in found
        ],
    }


def _row(conversion: Conversion, outcome: Outcome) -> dict[str, Any]:
    return {
        "sale_id": conversion.id,
        "order_id": conversion.order_id,
        "status": _status(outcome),
        "provider_error_code": outcome.code,
        "provider_error_category": outcome.category and outcome.category.value,
        "message": outcome.message,
    }


def _status(outcome: Outcome) -> str:
    """OK: the provider would accept the row. A dry run completes no row."""
    match outcome.verdict.value:
        case "COMPLETED":
            return "OK"
        case "FAILED":
            return outcome.code or "FAILED"
        case other:
            return other


def _print_result(each: DryRunResult) -> None:
    """Print a line for the group, one per distinct message about accepted rows, and one per row not accepted."""
    verdicts = Counter(outcome.verdict.value for _, outcome in each.outcomes)
    counts = [
        f"{verdicts[name]:,} {words}"
        for name, words in (
            ("COMPLETED", "valid"),
            ("FAILED", "refused"),
            ("RETRY", "could not be checked now"),
        )
        if verdicts[name]
    ]
    if each.expired:
        counts.append(f"{each.expired:,} expired")
    group = f"{each.group.provider_key} of {each.group.site_id}"
    out().print(f"{group}: {', '.join(counts)}.", markup=False, soft_wrap=True)
    for message in dict.fromkeys(
        outcome.message for _, outcome in each.outcomes if outcome.verdict.value == "COMPLETED"
    ):
        if message:
            out().print(f"  {message}", markup=False, soft_wrap=True)
    for conversion, outcome in each.outcomes:
        if outcome.verdict.value != "COMPLETED":
            code = f" {outcome.code}" if outcome.code and outcome.code != _status(outcome) else ""
            line = f"  {conversion.order_id}: {_status(outcome)}{code}: {outcome.message or ''}"
            out().print(line, markup=False, soft_wrap=True)


def _print_skipped(skipped: Counter[str]) -> None:
    for reason, count in sorted(skipped.items()):
        why = _BLOCKED_BY.get(reason, reason)
        out().print(f"{counted(count, 'group')} skipped: {why}.", markup=False, soft_wrap=True)
