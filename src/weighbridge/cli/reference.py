"""The page docs/cli.md, made from the commands: `python -m weighbridge.cli.reference`, or `make cli-docs`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from typer.core import TyperGroup

from weighbridge.cli.options import DEFAULT_WORKSPACE
from weighbridge.cli.root import command

TOP = f"""\
# Command line

Every command and option of `weighbridge`. `make cli-docs` writes this page from the commands: to change it, change
their help texts. `weighbridge COMMAND --help` (or `-h`) prints the same text, and `weighbridge --version` the version.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused or failed; a sentence on stderr gives the reason |
| 2 | wrong usage: an unknown option, a missing argument, or a value that is never valid |
| 130, 143 | stopped by Ctrl-C or by `SIGTERM` |

- A value that depends on the settings or on the database (`--platform`, `--pipeline`, `--workspace`, `--client`) is
  refused with 1. A wrong `--status`, a wrong `--scope` or a number out of range is wrong usage.
- Of several files or ids, all are processed. The code is 1 if one of them is refused or fails. A duplicate is not a
  failure.
- `up`, `api`, `worker` and `deliver` run until they are stopped, and then exit with 0.

## JSON

Commands whose result a program may read have `--json`. They print one JSON value to stdout, even if some files or ids
failed. Messages go to stderr. If the whole command is refused, stdout is empty. Fields have the names of the
[HTTP API](http.md), and times are in UTC. `watch --json` prints one object per line for each event.

## Settings

Commands read the environment and `weighbridge.toml` ([settings.md](settings.md)). Without `DATABASE_URL`, a command
starts the embedded Postgres in `WEIGHBRIDGE_HOME`, or joins it if another command has started it; the last command to
end stops it. The default workspace is `{DEFAULT_WORKSPACE}`, so you can try Weighbridge without
creating tenants.
"""

# Each top-level command under its subject, in the order of the page.
SUBJECTS: dict[str, tuple[str, ...]] = {
    "Load files": ("demo", "load", "watch"),
    "Run the service": ("up", "api", "worker", "deliver"),
    "Uploads": ("uploads",),
    "Keyword projects": ("projects",),
    "Stored files": ("storage",),
    "Delivery": ("sites", "providers", "conversions", "vault"),
    "Access": ("keys",),
    "Pipelines": ("pipelines",),
    "Database": ("db",),
    "Checks and maintenance": ("doctor", "verify", "recover", "clean"),
}


def page() -> str:
    """The whole page. KeyError if a subject names a command that does not exist."""
    root: Any = command()
    parts = [TOP]
    for subject, names in SUBJECTS.items():
        parts.append(f"## {subject}\n")
        for name in names:
            parts += _described(root.commands[name], f"weighbridge {name}")
    return "\n".join(parts)


def _described(found: Any, name: str) -> Iterator[str]:
    if isinstance(found, TyperGroup):
        yield f"`{name}`: {found.help}\n"
        for each in found.commands.values():
            yield from _described(each, f"{name} {each.name}")
        return
    arguments = [each for each in found.params if each.param_type_name == "argument"]
    options = [each for each in found.params if each.param_type_name == "option"]
    yield f"### {name}\n"
    yield f"```\n{' '.join([name, *map(_written, arguments), '[OPTIONS]' if options else '']).strip()}\n```\n"
    yield _paragraphs(found.help)
    if arguments or options:
        rows = [f"| {_name(each)} | {_meaning(each)} |" for each in (*arguments, *options)]
        yield "\n".join(("| option | meaning |", "|---|---|", *rows, ""))


def _written(argument: Any) -> str:
    """An argument in the usage line; one that may be left out is in brackets."""
    name = argument.metavar if argument.nargs == 1 else f"{argument.metavar}..."
    return name if argument.required else f"[{name}]"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag else f" {parameter.metavar}"
    return ", ".join(f"`{name}{value}`".replace("|", "\\|") for name in names)


def _meaning(parameter: Any) -> str:
    parts = [_paragraphs(parameter.help).strip()]
    if parameter.param_type_name == "option" and parameter.required:
        parts.append("Required.")
    if parameter.min is not None and parameter.max is not None:
        parts.append(f"{parameter.min:,} to {parameter.max:,}.")
    if default := _default(parameter):
        parts.append(f"Default: {default}.")
    return " ".join(parts).replace("|", "\\|")


def _default(parameter: Any) -> str:
    """The default as text. Options without a value have none; defaults from settings are in the help text."""
    value = parameter.default
    if value is None or (parameter.is_flag and not parameter.secondary_opts):
        return ""
    if parameter.is_flag:
        return f"`{(parameter.opts if value else parameter.secondary_opts)[0]}`"
    if value == DEFAULT_WORKSPACE:
        return "the default workspace"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _paragraphs(text: str) -> str:
    """Lines of one paragraph joined; paragraphs stay apart."""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n")) + "\n"


if __name__ == "__main__":
    print(page(), end="")
