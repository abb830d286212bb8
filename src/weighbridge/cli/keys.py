"""`weighbridge keys`: API keys, each with a workspace and scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, Workspace
from weighbridge.cli.output import err, out, print_json
from weighbridge.cli.table import plain_table

if TYPE_CHECKING:
    from weighbridge.app import App

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)


@app.command()
def create(
    workspace: Workspace = DEFAULT_WORKSPACE,
    name: Annotated[
        str, typer.Option("--name", help="A name for the key, such as its owner.", metavar="NAME")
    ] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="What the key allows: upload, read, operate or admin. Repeatable. Default: upload and read.",
            metavar="SCOPE",
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            min=1,
            max=3650,
            help="Days until the key expires. Default: it does not expire.",
            metavar="N",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its secret. The secret is not shown again."""
    scopes = tuple(dict.fromkeys(scope or ("upload", "read")))

    async def work(app: App) -> tuple[Any, str]:
        from datetime import timedelta

        from weighbridge.access import keys
        from weighbridge.model.errors import did_you_mean
        from weighbridge.postgres import clock
        from weighbridge.uploads.check_request import uuid_of

        for each in scopes:
            if each not in keys.SCOPES:
                hint = did_you_mean(each, keys.SCOPES) or "."
                raise typer.BadParameter(f"--scope: expected {', '.join(keys.SCOPES)}, got {each!r}{hint}")
        async with app.db.tx() as tx:
            ends = await clock.now(tx) + timedelta(days=days) if days else None
            return await keys.create(tx, uuid_of(workspace, "workspace", "workspace"), name, scopes, ends)

    key, secret = with_app(work)
    if as_json:
        print_json({**_to_json(key), "key": secret})
        return
    out().print(secret, markup=False, soft_wrap=True)
    sentence = f"For workspace {key.workspace_id}: {', '.join(key.scopes)}. The secret is not shown again."
    err().print(sentence, markup=False, soft_wrap=True)


@app.command("list")
def listing(
    workspace: Annotated[
        str | None, typer.Option("--workspace", help="Only keys of this workspace.", metavar="UUID")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List keys, without their secrets."""

    async def work(app: App) -> list[Any]:
        from weighbridge.access import keys
        from weighbridge.uploads.check_request import uuid_of

        async with app.db.tx() as tx:
            return list(
                await keys.listing(tx, uuid_of(workspace, "workspace", "workspace") if workspace else None)
            )

    found = with_app(work)
    if as_json:
        print_json([_to_json(key) for key in found])
        return
    from rich.markup import escape

    table = plain_table()
    for title in ("key", "prefix", "name", "workspace", "scopes", "created", "last used", "state"):
        table.add_column(title, overflow="fold")
    for key in found:
        used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
        state = (
            "revoked"
            if key.revoked_at
            else f"until {key.expires_at:%Y-%m-%d}"
            if key.expires_at
            else "active"
        )
        table.add_row(
            str(key.id), key.prefix, escape(key.name), str(key.workspace_id), " ".join(key.scopes),
            f"{key.created_at:%Y-%m-%d %H:%M}", used, state,
        )  # fmt: skip
    out().print(table)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, from `keys list`.", metavar="ID")],
) -> None:
    """Revoke a key immediately."""

    async def work(app: App) -> None:
        from weighbridge.access import keys
        from weighbridge.model.errors import RequestRefused
        from weighbridge.uploads.check_request import uuid_of

        async with app.db.tx() as tx:
            if not await keys.revoke(tx, uuid_of(key_id, "key", "ID")):
                raise RequestRefused(
                    404,
                    "unknown_key",
                    f"There is no active key {key_id}. List the keys: weighbridge keys list.",
                )

    with_app(work)
    out().print(f"{key_id} is revoked.")


def _to_json(key: Any) -> dict[str, Any]:
    return {**vars(key), "scopes": list(key.scopes)}
