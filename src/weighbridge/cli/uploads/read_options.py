"""Read options of `load`, `watch` and `uploads retry`: they override detection."""

from __future__ import annotations

from typing import Annotated

import typer

from weighbridge.model.reading import ABOUT

Encoding = Annotated[
    str | None, typer.Option("--encoding", help=ABOUT["encoding"], metavar="NAME", show_default=False)
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help=ABOUT["delimiter"], metavar="CHARACTER", show_default=False)
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help=ABOUT["decimal"], metavar="MARK", show_default=False)
]
DateOrder = Annotated[
    str | None, typer.Option("--date-order", help=ABOUT["date_order"], metavar="ORDER", show_default=False)
]
SumBreakdowns = Annotated[bool, typer.Option("--sum-breakdowns", help=ABOUT["sum_breakdowns"])]
ChangeSumBreakdowns = Annotated[
    bool | None,
    typer.Option("--sum-breakdowns/--no-sum-breakdowns", help=ABOUT["sum_breakdowns"], show_default=False),
]
