"""`weighbridge conversions`: list, inspect and retry deliveries to ad platforms."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.delivery.sites import check_providers, the_site
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson
from weighbridge.cli.output import out, print_json
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from uuid import UUID

    from weighbridge.app import App
    from weighbridge.cli.table import Row
    from weighbridge.delivery.conversions import ConversionRow
    from weighbridge.delivery.ledger import LedgerEntry
    from weighbridge.postgres.transactions import Tx

app = typer.Typer(help="List, inspect, queue and retry conversions.", no_args_is_help=True)

Workspace = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        help="The workspace's UUID. Default: the workspace of --site, otherwise the default workspace.",
        metavar="UUID",
    ),
]
OfSite = Annotated[
    str | None, typer.Option("--site", help="Only conversions of this site (id or name).", metavar="SITE")
]
OfProvider = Annotated[
    str | None, typer.Option("--provider", help="Only conversions for this provider.", metavar="PROVIDER")
]
OfCategory = Annotated[
    str | None,
    typer.Option(
        "--category", help="Only conversions with this error category, such as AUTH.", metavar="NAME"
    ),
]
STATUSES = ("QUEUED", "RETRY", "PROCESSING", "COMPLETED", "FAILED")
_NAMED = 10  # sites listed in the message about an ambiguous order
_WIDE = 120  # terminal width from which the optional columns are shown
_COLOURS = {"COMPLETED": "green", "FAILED": "red", "RETRY": "yellow"}


@app.command("list")
def listing(
    status: Annotated[
        str | None,
        typer.Option(
            "--status", help=f"Only conversions with this status: {', '.join(STATUSES)}.", metavar="STATUS"
        ),
    ] = None,
    provider: OfProvider = None,
    site: OfSite = None,
    category: OfCategory = None,
    order: Annotated[
        str | None, typer.Option("--order", help="Only conversions with this order id.", metavar="ID")
    ] = None,
    workspace: Workspace = None,
    limit: Annotated[
        int, typer.Option("--limit", help="Maximum number of conversions.", metavar="N", min=1, max=10_000)
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List a workspace's conversions, newest first; queued conversions in delivery order."""
    wanted_status = _one_of("--status", status, STATUSES)
    wanted_category = category_of(category)

    async def work(app: App) -> list[ConversionRow]:
        from weighbridge.delivery import conversions
        from weighbridge.postgres import roles

        await check_providers(app, provider)
        workspace_id, site_id = await workspace_and_site(app, site, workspace)
        async with app.db.tx(roles.DELIVER, workspace_id) as tx:
            wanted = conversions.ConversionFilter(
                workspace_id, site_id, provider, wanted_status, wanted_category, order
            )
            return await conversions.get(tx, await conversions.page(tx, wanted, None, limit))

    found = with_app(work)
    if as_json:
        print_json([_to_json(each) for each in found])
        return
    if not found:
        out().print("No conversions.")
        return
    from weighbridge.cli.table import print_rows

    wide = out().width >= _WIDE
    titles = ["sale", "provider", "status", *(["when", "calls"] if wide else []), "order"]
    print_rows(titles, [_row(each, wide=wide) for each in found], folded="order", right=["calls"])


@app.command()
def show(
    sale: Annotated[
        str, typer.Argument(help="The sale's id or its order id.", metavar="SALE", show_default=False)
    ],
    site: Annotated[
        str | None,
        typer.Option("--site", help="The site, if several sites have this order.", metavar="SITE"),
    ] = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Show one sale with each of its providers and the ledger of the last call."""

    async def work(app: App) -> list[tuple[ConversionRow, list[LedgerEntry]]]:
        from weighbridge.delivery import conversions, ledger
        from weighbridge.model.errors import RequestRefused
        from weighbridge.postgres import roles
        from weighbridge.uploads.check_request import uuid_of

        workspace_id, site_id = None, None
        if site is not None:
            workspace_id, site_id = await workspace_and_site(app, site, workspace)
        elif workspace is not None:
            workspace_id = uuid_of(workspace, "workspace", "workspace")
        async with app.db.tx(roles.DELIVER, workspace_id) as tx:
            sale_id = await _sale(tx, sale, workspace_id, site_id)
            found = await conversions.of_sale(tx, sale_id) if sale_id else []
            batches = [each.batch_id for each in found]
            ledgers = [await ledger.of_batch(tx, batch) if batch else [] for batch in batches]
        if not found:
            message = f"There is no sale {sale!r}, or no provider of its site accepts its click id."
            raise RequestRefused(404, "unknown_conversion", message)
        return list(zip(found, ledgers, strict=True))

    found = with_app(work)
    if as_json:
        first, _ = found[0]
        deliveries = [
            {**_to_json(each), "ledger": [_entry(entry) for entry in ledger]} for each, ledger in found
        ]
        print_json(
            {
                "sale_id": first.sale_id,
                "site_id": first.site_id,
                "order_id": first.order_id,
                "deliveries": deliveries,
            }
        )
        return
    for number, (each, ledger) in enumerate(found):
        if number:
            out().print()
        for name, value in _to_json(each).items():
            if value is not None:
                out().print(f"{name:<24} {value}", markup=False, soft_wrap=True)
        for entry in ledger:
            out().print(f"{entry.phase.lower():<24} {_sentence(entry)}", markup=False, soft_wrap=True)


async def _sale(tx: Tx, text: str, workspace_id: UUID | None, site_id: UUID | None) -> UUID | None:
    """Find a sale by its id or its order id."""
    from uuid import UUID

    from weighbridge.delivery import conversions
    from weighbridge.model.errors import RequestRefused

    with suppress(ValueError):
        if await conversions.of_sale(tx, UUID(text)):
            return UUID(text)
    found = await conversions.ordered(tx, text, workspace_id, site_id)
    if len(found) > 1:
        sites = ", ".join(f"{each.site_name} ({each.site_id})" for each in found[:_NAMED])
        more = " and others" if len(found) > _NAMED else ""
        message = f"{text!r}: several sites have this order: {sites}{more}. Choose one with --site."
        raise RequestRefused(409, "several_sales", message)
    return found[0].sale_id if found else None


async def workspace_and_site(app: App, site: str | None, workspace: str | None) -> tuple[UUID, UUID | None]:
    """The workspace and the site that the options name."""
    from weighbridge.uploads.check_request import uuid_of

    if site is not None:
        found = await the_site(app, site, workspace)
        return found.workspace_id, found.id
    return uuid_of(workspace or DEFAULT_WORKSPACE, "workspace", "workspace"), None


def category_of(text: str | None) -> str | None:
    from weighbridge.model.delivery import Category

    return _one_of("--category", text, [each.value for each in Category])


def _one_of(option: str, text: str | None, known: Any) -> str | None:
    from weighbridge.model.errors import did_you_mean

    wanted = text and text.upper()
    if text is not None and wanted not in known:
        hint = did_you_mean(text, known) or "."
        raise typer.BadParameter(f"{option}: expected one of {', '.join(known)}, got {text!r}{hint}")
    return wanted


def _to_json(found: ConversionRow) -> dict[str, Any]:
    """The object that `--json` prints; its field names are those of the API."""
    fields = {**vars(found), "value": None if found.value is None else f"{found.value.normalize():f}"}
    renamed = {"provider_key": "provider", "attempt_count": "attempts", "retry_count": "retries"}
    return {renamed.get(name, name): value for name, value in fields.items()}


def _entry(entry: LedgerEntry) -> dict[str, Any]:
    return {("provider" if name == "provider_key" else name): value for name, value in vars(entry).items()}


def _sentence(entry: LedgerEntry) -> str:
    at = f"{entry.created_at:%Y-%m-%d %H:%M:%S}"
    if entry.phase == "STARTED":
        return f"{at}, with {counted(entry.claimed_count or 0, 'conversion')}"
    counts = (
        f"{entry.completed_count:,} delivered, {entry.failed_count:,} failed, {entry.retry_count:,} to retry"
    )
    error = ", ".join(filter(None, (entry.error_category, entry.error_code)))
    took = f" in {entry.duration_ms:,} ms" if entry.duration_ms is not None else ""
    return f"{at}{took}: {counts}{f' ({error})' if error else ''}"


def _when(found: ConversionRow) -> str:
    if found.uploaded_at is not None:
        return f"{found.uploaded_at:%Y-%m-%d %H:%M:%S}"
    if found.status in ("QUEUED", "RETRY"):
        return f"from {found.next_retry_at:%Y-%m-%d %H:%M:%S}" if found.next_retry_at else "now"
    return f"{found.updated_at:%Y-%m-%d %H:%M:%S}"


def _row(found: ConversionRow, *, wide: bool) -> Row:
    from rich.markup import escape

    from weighbridge.cli.table import Row

    colour = _COLOURS.get(found.status, "cyan")
    more = [_when(found), f"{found.attempt_count:,}"] if wide else []
    cells = [str(found.sale_id), found.provider_key, f"[{colour}]{found.status}[/]", *more]
    return Row([*cells, escape(found.order_id)], _under(found, wide=wide))


def _under(found: ConversionRow, *, wide: bool) -> list[str]:
    """Remarks below a row: the last error with its code, and the time of the next attempt if no column shows it."""
    remarks = [] if found.status == "COMPLETED" or not found.last_error else [found.last_error]
    if remarks and found.provider_error_code and not remarks[0].startswith(found.provider_error_code):
        remarks = [f"{found.provider_error_code}: {remarks[0]}"]
    if remarks and found.provider_error_category:
        remarks = [f"{remarks[0]} ({found.provider_error_category})"]
    if found.status in ("QUEUED", "RETRY") and found.next_retry_at and not wide:
        remarks.append(f"Next attempt: {_when(found)}.")
    return remarks
