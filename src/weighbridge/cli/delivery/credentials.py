"""`weighbridge providers credentials`: values for the vault, from a file, from stdin or typed.

Never from the arguments, which everybody on the machine can read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.delivery.providers import ProviderName
from weighbridge.cli.delivery.sites import InWorkspace, SiteName, the_site
from weighbridge.cli.running import AsJson, err, out, print_json, with_app

if TYPE_CHECKING:
    from uuid import UUID

    from weighbridge.app import App
    from weighbridge.delivery.providers.base import Provider
    from weighbridge.delivery.sites import CredentialsStanding, Site

app = typer.Typer()

LARGEST = 2**20  # bytes


@app.command()
def credentials(
    site: SiteName,
    provider: ProviderName,
    file: Annotated[
        Path | None,
        typer.Argument(
            help='JSON, {"name": "value", …}; - for stdin. Without it they are asked for.',
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Forget them: nothing more is sent until there are new ones.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before removing.")] = False,
    workspace: InWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """Seal credentials and put them in place of what there was. `providers list` says which a provider needs."""
    if remove:
        if file is not None:
            raise typer.BadParameter("--remove: expected no file beside it.")
        _remove(site, provider, workspace, yes=yes, as_json=as_json)
        return
    said = _read(file) if file is not None else _asked(site, provider, workspace)

    async def work(app: App) -> tuple[Site, CredentialsStanding, int]:
        from weighbridge.delivery import credentials, overview
        from weighbridge.delivery.outbound import ROLE

        found = await the_site(app, site, workspace)
        put = await credentials.put(app.ctx, found.workspace_id, found.id, provider, said, "command line")
        async with app.db.tx(ROLE, found.workspace_id) as tx:
            refused = overview.Failed(found.workspace_id, found.id, provider, "AUTH")
            return found, put, sum((await overview.failed_of(tx, refused)).values())

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
        f"{found.name} has credentials for {provider} (version {put.version}, key {put.key_id}).",
        markup=False,
        soft_wrap=True,
    )
    for hint in _hints(found, provider, refused, in_use=in_use):
        err().print(hint, markup=False, soft_wrap=True)


def _hints(site: Site, provider: str, refused: int, *, in_use: bool) -> list[str]:
    """What one would do next."""
    if not in_use:
        options = " ".join(f"--provider {each}" for each in (*site.providers, provider))
        return [f"No sale goes there yet: weighbridge sites change {site.id} {options}"]
    if refused:
        which = f"--site {site.id} --provider {provider} --category AUTH"
        return [f"{refused:,} failed for want of good ones: weighbridge conversions retry {which}"]
    return ["weighbridge deliver --dry-run has the provider check them, as soon as a conversion waits."]


def _read(file: Path) -> Any:
    """What the file says. It is a secret: nothing of it is repeated, whatever is wrong with it."""
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
    wrong, said = "JSON of another kind", None
    try:
        said = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        wrong = "something that is not UTF-8"
    except (ValueError, RecursionError):
        wrong = "something that is no JSON"
    if not isinstance(said, dict):  # raised out here: what was caught carries the text
        raise _unreadable(name, wrong)
    return said


def _unreadable(name: str, wrong: str) -> Exception:
    from weighbridge.model.errors import RequestRefused

    message = f'{name}: expected an object such as {{"name": "value"}}, got {wrong}.'
    return RequestRefused(422, "invalid_credentials", message)


def _asked(site: str, provider: str, workspace: str | None) -> dict[str, str]:
    """Typed one by one; what is secret does not show."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("expected a JSON file, - for stdin, or a terminal to ask at.")

    async def look(app: App) -> Provider:
        """Before anybody types: is there such a site, such a provider, and a key to seal with?"""
        from weighbridge.delivery import credentials
        from weighbridge.delivery.outbound import outbound_of

        await the_site(app, site, workspace)
        return credentials.find(outbound_of(app.ctx).providers, provider)

    said: dict[str, str] = {}
    for need in with_app(look).needs:
        told = f"{need.name} ({need.help}{'' if need.required else '; Enter: without'})"
        default = None if need.required else ""
        said[need.name] = typer.prompt(
            told, default=default, hide_input=need.secret, show_default=False, err=True
        )
    return said


def _remove(site: str, provider: str, workspace: str | None, *, yes: bool, as_json: bool) -> None:
    if not yes:
        typer.confirm(f"Forget the credentials of {site} for {provider}?", abort=True, err=True)

    async def work(app: App) -> UUID:
        from weighbridge.delivery import sites
        from weighbridge.model.errors import RequestRefused

        found = await the_site(app, site, workspace)
        async with app.db.tx(workspace_id=found.workspace_id) as tx:
            gone = await sites.remove_credentials(tx, found.workspace_id, found.id, provider, "command line")
        if not gone:
            message = (
                f"{found.name} has no credentials for {provider}. weighbridge providers status says who has."
            )
            raise RequestRefused(404, "no_credentials", message)
        return found.id

    site_id = with_app(work)
    if as_json:
        print_json({"site_id": site_id, "provider": provider, "removed": True})
    else:
        out().print(f"{site_id} has no credentials for {provider} any more.", soft_wrap=True)
