"""`weighbridge vault`: the keys that encrypt credentials, and their rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import complain, err, out, print_json
from weighbridge.cli.table import plain_table
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.delivery.rotate_keys import Rotated

app = typer.Typer(help="Manage the keys that encrypt the credentials of ad platforms.", no_args_is_help=True)


@app.command()
def key(as_json: AsJson = False) -> None:
    """Create a key and print it. Weighbridge does not store it: keep it with your other secrets."""
    from weighbridge.delivery.vault import VARIABLE, Vault, new_key

    made = new_key()
    key_id = Vault.open(made).key_ids[0]
    if as_json:
        print_json({"key": made, "key_id": key_id})
        return
    out().print(made, markup=False, soft_wrap=True)
    err().print(
        f"This is key {key_id}. Set it as {VARIABLE} for the API and all workers. If a key is already set, put the new "
        f"key before it ({VARIABLE}=NEW,OLD), restart them, run weighbridge vault rotate, and remove the old key. "
        "Credentials cannot be read without their key: keep a backup.",
        markup=False,
        soft_wrap=True,
    )


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the configured keys and how many credentials each encrypts. Exit code 1: a key is missing."""

    async def work(app: App) -> tuple[tuple[str, ...], dict[str, int]]:
        from weighbridge.cli.delivery.group_status import key_ids
        from weighbridge.delivery import credential_queries
        from weighbridge.postgres import roles

        async with app.db.tx(roles.DELIVER) as tx:
            return key_ids(app) or (), await credential_queries.keys_in_use(tx)

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
            f"{_credentials(count)} encrypted with key {key_id}, which is not in WEIGHBRIDGE_VAULT_KEY. Add the key "
            "or enter the credentials again: weighbridge providers status shows which."
        )
    if unknown:
        raise typer.Exit(1)


@app.command()
def rotate(as_json: AsJson = False) -> None:
    """Re-encrypt all credentials with the first key of WEIGHBRIDGE_VAULT_KEY. Exit code 1: some cannot be read.

    The command can be interrupted and repeated, even while workers deliver.
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
        sentence = f"{_credentials(done.resealed)} re-encrypted with key {done.key_id}."
        out().print(sentence if done.resealed else f"All credentials already use key {done.key_id}.")
    for each in done.unreadable:
        complain(each.reason)
    if done.unreadable:
        raise typer.Exit(1)


def _print_status(known: tuple[str, ...], used: dict[str, int]) -> None:
    if not known:
        out().print("WEIGHBRIDGE_VAULT_KEY is not set. Create a key with: weighbridge vault key")
        return

    table = plain_table()
    table.add_column("key")
    table.add_column("credentials", justify="right")
    table.add_column("")
    for key_id in known:
        count = used.get(key_id, 0)
        remark = "active" if key_id == known[0] else "weighbridge vault rotate" if count else "can be removed"
        table.add_row(key_id, f"{count:,}", remark)
    out().print(table)


def _credentials(count: int) -> str:
    return counted(count, "credential is", "credentials are")
