"""`weighbridge vault`: the keys that seal credentials, and changing them (S4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from weighbridge.cli.running import AsJson, complain, err, out, print_json, with_app

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.delivery.rotate_keys import Rotated

app = typer.Typer(help="The vault: keys that seal the credentials of ad platforms.", no_args_is_help=True)


@app.command()
def key(as_json: AsJson = False) -> None:
    """Make a key and print it. It is stored nowhere: keep it where your other secrets are."""
    from weighbridge.delivery.vault import VARIABLE, Vault, new_key

    made = new_key()
    key_id = Vault.open(made).key_ids[0]
    if as_json:
        print_json({"key": made, "key_id": key_id})
        return
    out().print(made, markup=False, soft_wrap=True)
    err().print(
        f"This is key {key_id}. Set it as {VARIABLE} for the API and all workers. Where there is one already, put it "
        f"in front of that ({VARIABLE}=NEW,OLD), start them again, run weighbridge vault rotate, and take the old one "
        "out. Without its key nobody can read a credential: keep it.",
        markup=False,
        soft_wrap=True,
    )


@app.command()
def status(as_json: AsJson = False) -> None:
    """The keys of the setting, and how many credentials each holds. Exit 1: some need a key that is not there."""

    async def work(app: App) -> tuple[tuple[str, ...], dict[str, int]]:
        from weighbridge.cli.delivery.providers import key_ids
        from weighbridge.delivery import overview
        from weighbridge.delivery.outbound import ROLE

        async with app.db.tx(ROLE) as tx:
            return key_ids(app) or (), await overview.keys_in_use(tx)

    known, used = with_app(work)
    unknown = {key_id: count for key_id, count in used.items() if key_id not in known}
    if as_json:
        print_json(
            {
                "keys": [
                    {"key_id": key_id, "seals": key_id == known[0], "credentials": used.get(key_id, 0)}
                    for key_id in known
                ],
                "unknown": [{"key_id": key_id, "credentials": count} for key_id, count in unknown.items()],
            }
        )
    else:
        _print_status(known, used)
    for key_id, count in unknown.items():
        complain(
            f"{_credentials(count)} under the key {key_id}, which WEIGHBRIDGE_VAULT_KEY does not have. Put it back, or "
            "enter them anew: weighbridge providers status says which."
        )
    if unknown:
        raise typer.Exit(1)


@app.command()
def rotate(as_json: AsJson = False) -> None:
    """Seal all credentials with the first key of WEIGHBRIDGE_VAULT_KEY. Exit 1: some cannot be read.

    It may be stopped and run again, also beside workers that deliver.
    """

    async def work(app: App) -> Rotated:
        from weighbridge.delivery.rotate_keys import rotate

        return await rotate(app.ctx)

    done = with_app(work)
    if as_json:
        print_json(
            {
                "key_id": done.key_id,
                "resealed": done.resealed,
                "unreadable": [vars(each) for each in done.unreadable],
            }
        )
    elif done.resealed or not done.unreadable:
        told = f"{_credentials(done.resealed)} sealed anew with the key {done.key_id}"
        out().print(f"{told}." if done.resealed else f"All are sealed with the key {done.key_id} already.")
    for each in done.unreadable:
        complain(each.reason)
    if done.unreadable:
        raise typer.Exit(1)


def _print_status(known: tuple[str, ...], used: dict[str, int]) -> None:
    if not known:
        out().print("WEIGHBRIDGE_VAULT_KEY is not set. weighbridge vault key makes one.")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("key")
    table.add_column("credentials", justify="right")
    table.add_column("")
    for key_id in known:
        held = used.get(key_id, 0)
        remark = "seals" if key_id == known[0] else "weighbridge vault rotate" if held else "can be taken out"
        table.add_row(key_id, f"{held:,}", remark)
    out().print(table)


def _credentials(count: int) -> str:
    return f"{count:,} credential{' is' if count == 1 else 's are'}"
