"""The specification of a generated export: platform, size and the quirks of real exports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal, get_args

Platform = Literal["meta", "google", "tiktok"]
Level = Literal["campaign", "ad_set", "ad"]
Encoding = Literal["utf-8", "utf-8-sig", "utf-16", "cp1252"]
Defect = Literal[
    "mangled_id",  # an id that went through a spreadsheet: 1.20253E+17
    "negative_impressions",
    "text_in_money",
    "missing_date",
    "impossible_date",
    "missing_name",
    "formula",  # a name that a spreadsheet would run as a formula; not an error
    "equal_repeat",  # a row that repeats an earlier one
    "conflicting_repeat",  # a row that repeats an earlier one, with other numbers
]


@dataclass(frozen=True)
class ExportSpec:
    """The defaults give a clean daily file as the platform writes it today."""

    platform: Platform
    level: Level = "ad"
    campaigns: int = 3
    ad_sets: int = 2  # in each campaign; ad groups elsewhere
    ads: int = 2  # in each ad set
    days: int = 7
    start: date = date(2025, 7, 1)
    rows: int | None = None  # cut the file after this many
    seed: int = 1

    currency: str = "USD"
    ids: bool | None = None  # id columns; by default as usual: Meta and Google yes, TikTok no
    columns: tuple[str, ...] | None = None  # only these headers, in this order
    defects: tuple[Defect, ...] = ()  # each makes one bad row; name one twice for two

    encoding: Encoding = "utf-8"
    delimiter: str | None = None  # by default a tab in UTF-16 and a comma elsewhere
    line_end: str = "\n"
    preamble: int | None = None  # lines over the header; by default 2 for Google, else none
    blank_lines: int = 0  # at the end
    totals: bool = True  # Meta's row after the header, Google's and TikTok's rows at the end
    totals_column: int = 0  # where Google puts its label
    thousands: str | None = None  # separator in every number; by default a comma in Google's counts only
    decimal_mark: str = "."
    null: str | None = None  # by default nothing, ` --` and `-`
    dates: Literal["iso", "us", "mixed"] = "iso"

    variant_headers: bool = False  # the platform's other spelling: `Ad Set Name`, `Impressions`, `By Day`
    language: Literal["en", "fr", "it"] = "en"  # Meta
    day_column: bool = True  # Meta: without it, the day is where starts = ends
    aggregate: bool = False  # Meta: one row for the whole range, starts ≠ ends
    duplicate_column: bool = False  # Meta: `Campaign name` twice
    multiline_names: bool = False  # Meta: line breaks inside cells
    empty: bool = False  # no rows; Meta writes `No data available.`

    def __post_init__(self) -> None:
        for value, choices in ((self.platform, Platform), (self.level, Level), (self.encoding, Encoding)):
            if value not in get_args(choices):
                raise ValueError(f"expected one of {', '.join(get_args(choices))}, got {value!r}")
        if "mangled_id" in self.defects and not self.has_ids:
            raise ValueError("mangled_id: expected an export with id columns; set ids=True")

    @property
    def has_ids(self) -> bool:
        return self.platform != "tiktok" if self.ids is None else self.ids

    @property
    def separator(self) -> str:
        return self.delimiter or ("\t" if self.encoding == "utf-16" else ",")

    @property
    def null_marker(self) -> str:
        return {"meta": "", "google": " --", "tiktok": "-"}[self.platform] if self.null is None else self.null

    @property
    def entities(self) -> tuple[int, int, int]:
        match self.level:
            case "campaign":
                return self.campaigns, 1, 1
            case "ad_set":
                return self.campaigns, self.ad_sets, 1
            case "ad":
                return self.campaigns, self.ad_sets, self.ads
