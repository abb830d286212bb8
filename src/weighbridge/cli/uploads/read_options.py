"""Read options of `load`, `watch` and `uploads retry`: they override detection."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weighbridge.model.read_options import ABOUT_NEW, ABOUT_RETRY


def _option(name: str, about: str, metavar: str) -> Any:
    return typer.Option(name, help=about, metavar=metavar, show_default=False)


Encoding = Annotated[str | None, _option("--encoding", ABOUT_NEW["encoding"], "NAME")]
Delimiter = Annotated[str | None, _option("--delimiter", ABOUT_NEW["delimiter"], "CHARACTER")]
Decimal = Annotated[str | None, _option("--decimal", ABOUT_NEW["decimal"], "MARK")]
DateOrder = Annotated[str | None, _option("--date-order", ABOUT_NEW["date_order"], "ORDER")]
SumBreakdowns = Annotated[bool, typer.Option("--sum-breakdowns", help=ABOUT_NEW["sum_breakdowns"])]

ChangeEncoding = Annotated[str | None, _option("--encoding", ABOUT_RETRY["encoding"], "NAME")]
ChangeDelimiter = Annotated[str | None, _option("--delimiter", ABOUT_RETRY["delimiter"], "CHARACTER")]
ChangeDecimal = Annotated[str | None, _option("--decimal", ABOUT_RETRY["decimal"], "MARK")]
ChangeDateOrder = Annotated[str | None, _option("--date-order", ABOUT_RETRY["date_order"], "ORDER")]
ChangeSumBreakdowns = Annotated[
    bool | None,
    typer.Option(
        "--sum-breakdowns/--no-sum-breakdowns", help=ABOUT_RETRY["sum_breakdowns"], show_default=False
    ),
]
