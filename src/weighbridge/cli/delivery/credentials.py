"""`weighbridge providers credentials`: store credentials from a file, stdin or a prompt.

Never from arguments, which every user of the machine can read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.delivery.providers import ProviderName
from weighbridge.cli.delivery.sites import InWorkspace, SiteName, the_site
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import err, out, print_json

if TYPE_CHECKING:
    from uuid import UUID

    from weighbridge.app import App
    from weighbridge.delivery.credential_queries import CredentialsStatus
    from weighbridge.delivery.providers.base import Provider
    from weighbridge.delivery.sites import Site

app = typer.Typer()

LARGEST = 2**20  # bytes


@app.command()
def credentials(
    site: SiteName,
    provider: ProviderName,
    file: Annotated[
        Path | None,
        typer.Argument(
            help='JSON, {"name": "value", …}; - for stdin. Default: prompt for each value.',
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Delete the credentials. Deliveries stop until new ones are stored."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before deleting.")] = False,
    workspace: InWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """Encrypt and store credentials, replacing existing ones. `providers list` shows what a provider requires."""
    if remove:
        if file is not None:
            raise typer.BadParameter("--remove cannot be combined with FILE.")
        _remove(site, provider, workspace, yes=yes, as_json=as_json)
        return
    values = _read(file) if file is not None else _prompt(site, provider, workspace)

    async def work(app: App) -> tuple[Site, CredentialsStatus, int]:
        from weighbridge.delivery import credentials, queue
        from weighbridge.postgres import roles

        found = await the_site(app, site, workspace)
        put = await credentials.put(app.ctx, found.workspace_id, found.id, provider, values, "command line")
        async with app.db.tx(roles.DELIVER, found.workspace_id) as tx:
            refused = queue.FailedFilter(found.id, provider, "AUTH")
            return found, put, sum((await queue.count_failed(tx, refused, found.workspace_id)).values())

    found, put, refused = with_app(work)
    in_use = provider in found.providers
    if as_json:
        print_json(
            {
                "site_id": found.id,
                "provider": provider,
                "version": put.version,
                "key_id": put.key_id,
                "in_use": in_use,
            }
        )
        return
    out().print(
        f"Credentials of {found.name} for {provider} stored (version {put.version}, key {put.key_id}).",
        markup=False,
        soft_wrap=True,
    )
    for hint in _hints(found, provider, refused, in_use=in_use):
        err().print(hint, markup=False, soft_wrap=True)


def _hints(site: Site, provider: str, refused: int, *, in_use: bool) -> list[str]:
    """Suggestions for the next step."""
    if not in_use:
        options = " ".join(f"--provider {each}" for each in (*site.providers, provider))
        return [f"The site does not use this provider yet: weighbridge sites change {site.id} {options}"]
    if refused:
        which = f"--site {site.id} --provider {provider} --category AUTH"
        return [
            f"{refused:,} conversions failed because of the old credentials: weighbridge conversions retry {which}"
        ]
    return ["To check the credentials, run weighbridge deliver --dry-run after a conversion is queued."]


def _read(file: Path) -> Any:
    """Read the file. Its content is secret: error messages never quote it."""
    name = "stdin" if str(file) == "-" else str(file)
    try:
        if name == "stdin":
            raw = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with file.open("rb") as opened:
                raw = opened.read(LARGEST + 1)
    except OSError as error:
        raise typer.BadParameter(f"FILE: {name} cannot be read: {error.strerror}.") from None
    if len(raw) > LARGEST:
        raise _unreadable(name, "more than a megabyte")
    wrong, values = "other JSON", None
    try:
        values = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        wrong = "text that is not UTF-8"
    except (ValueError, RecursionError):
        wrong = "text that is not JSON"
    if not isinstance(values, dict):  # raised outside the except block: the caught error contains the text
        raise _unreadable(name, wrong)
    return values


def _unreadable(name: str, wrong: str) -> Exception:
    from weighbridge.model.errors import RequestRefused

    message = f'{name}: expected an object such as {{"name": "value"}}, got {wrong}.'
    return RequestRefused(422, "invalid_credentials", message)


def _prompt(site: str, provider: str, workspace: str | None) -> dict[str, str]:
    """Prompt for each value. Secret input is hidden."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("expected a JSON file, - for stdin, or a terminal for the prompts.")

    async def look(app: App) -> Provider:
        """Before prompting, check that the site, the provider and a vault key exist."""
        from weighbridge.delivery import credentials
        from weighbridge.delivery.context import outbound_of

        await the_site(app, site, workspace)
        return credentials.known_provider(outbound_of(app.ctx).providers, provider)

    values: dict[str, str] = {}
    for need in with_app(look).needs:
        text = f"{need.name} ({need.help}{'' if need.required else '; optional, press Enter to skip'})"
        default = None if need.required else ""
        values[need.name] = typer.prompt(
            text, default=default, hide_input=need.secret, show_default=False, err=True
        )
    return values


def _remove(site: str, provider: str, workspace: str | None, *, yes: bool, as_json: bool) -> None:
    if not yes:
        typer.confirm(f"Delete the credentials of {site} for {provider}?", abort=True, err=True)

    async def work(app: App) -> UUID:
        from weighbridge.delivery import credential_queries
        from weighbridge.model.errors import RequestRefused

        found = await the_site(app, site, workspace)
        async with app.db.tx(workspace_id=found.workspace_id) as tx:
            removed = await credential_queries.remove(
                tx, found.workspace_id, found.id, provider, "command line"
            )
        if not removed:
            message = f"{found.name} has no credentials for {provider}. See weighbridge providers status."
            raise RequestRefused(404, "no_credentials", message)
        return found.id

    site_id = with_app(work)
    if as_json:
        print_json({"site_id": site_id, "provider": provider, "removed": True})
    else:
        out().print(f"Credentials of {site_id} for {provider} deleted.", soft_wrap=True)
