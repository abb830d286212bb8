"""The columns of each platform's export, in the order and spelling of the real files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from weighbridge.testing import _names as names
from weighbridge.testing import _text as text
from weighbridge.testing._facts import Facts
from weighbridge.testing._spec import ExportSpec

Role = Literal["day", "id", "name", "impressions", "spend", "metric", "label"]


@dataclass(frozen=True)
class Column:
    header: str
    role: Role
    cells: Callable[[Facts], pa.StringArray]


def layout(spec: ExportSpec) -> list[Column]:
    """All columns of the export that `spec` describes, or those that it chose."""
    columns = {"meta": _meta, "google": _google, "tiktok": _tiktok}[spec.platform](spec)
    if not spec.has_ids:
        columns = [column for column in columns if column.role != "id"]
    if spec.columns is not None:
        by_header = {column.header: column for column in columns}
        columns = [by_header[header] for header in spec.columns]
    if spec.language != "en":
        columns = [replace(column, header=_translated(column.header, spec)) for column in columns]
    return columns


def _meta(spec: ExportSpec) -> list[Column]:
    make, null, currency = _Cells(spec), spec.null_marker, spec.currency
    ad_set, ad = ("Ad Set Name", "Ad Name") if spec.variant_headers else ("Ad set name", "Ad name")
    columns = [
        make.day("Reporting starts"),
        make.day("Reporting ends", last=spec.aggregate),
        *([make.day("Day")] if spec.day_column and not spec.aggregate else []),
        *make.entity("Campaign name", "Campaign ID", "campaign"),
        make.label("Campaign delivery", "active"),
    ]
    if spec.level != "campaign":
        columns += [*make.entity(ad_set, "Ad set ID", "ad_set"), make.label("Ad set delivery", "active")]
        columns += [make.label("Bid", "0"), make.label("Bid type", "ABSOLUTE_OCPM")]
        columns += [make.label("Last significant edit", "2025-06-24T09:30:00+0200")]
    if spec.level == "ad":
        columns += [*make.entity(ad, "Ad ID", "ad"), make.label("Ad delivery", "active")]
    columns += [
        make.label("Attribution setting", "7-day click or 1-day view"),
        make.count("Results", "purchases", null_at_zero=True),
        make.label("Result indicator", "actions:offsite_conversion.fb_pixel_purchase"),
        make.count("Reach", "reach"),
        make.count("Impressions", "impressions"),
        make.ratio("Cost per results", "spend", "purchases"),
        make.money(f"Amount spent ({currency})", "spend"),
        make.label("Starts" if spec.level != "campaign" else "Ends", "Ongoing"),
        make.ratio("Frequency", "impressions", "reach"),
        make.count("Unique link clicks", "clicks"),
        make.count("Link clicks", "clicks"),
        make.label("Ad set budget", "Using campaign budget"),
        make.label("Ad set budget type", null or "0"),
        make.count("Purchases", "purchases", null_at_zero=True),
        make.money("Purchases conversion value", "value"),
    ]
    if spec.level == "ad":
        columns += [
            make.ratio(f"CPM (cost per 1,000 impressions) ({currency})", "spend", "impressions", scale=1000),
            make.label("Quality ranking", "-"),
            make.ratio("Purchase ROAS (return on ad spend)", "value", "spend"),
        ]
    if spec.duplicate_column:
        columns.append(make.entity("Campaign name", "Campaign ID", "campaign")[0])
    return columns


def _google(spec: ExportSpec) -> list[Column]:
    make = _Cells(spec)
    columns = [make.day("Day")]
    if spec.level == "ad":
        columns += [make.label("Ad status", "Enabled"), *make.entity("Ad name", "Ad ID", "ad")]
    if spec.level != "campaign":
        columns += [
            make.label("Ad group status", "Enabled"),
            *make.entity("Ad group", "Ad group ID", "ad_set"),
        ]
    columns += [
        make.label("Campaign status", "Enabled"),
        *make.entity("Campaign", "Campaign ID", "campaign"),
        make.label("Status reasons", "[]"),
        make.label("Campaign type", "Search"),
        make.label("Currency code", spec.currency),
        make.money("Cost", "spend"),
        make.count("Impressions" if spec.variant_headers else "Impr.", "impressions"),
        make.count("Clicks", "clicks"),
        make.ratio("CTR", "clicks", "impressions", scale=100, suffix="%"),
        *([make.label("Currency code", spec.currency)] if spec.level == "ad_set" else []),
        make.ratio("Avg. CPC", "spend", "clicks"),
        make.count("Conversions", "purchases", decimals=True),
        make.ratio("Cost / conv.", "spend", "purchases"),
        make.money("Conv. value", "value"),
        make.label("Search impr. share", "< 10%"),
        make.label("Bid strategy type", spec.null_marker),
    ]
    return columns


def _tiktok(spec: ExportSpec) -> list[Column]:
    make, other = _Cells(spec), spec.variant_headers
    destination = "（Destination）" if other else " (Destination)"  # seen with full-width brackets
    columns = make.entity("Campaign name", "Campaign ID", "campaign")
    if spec.level != "campaign":
        columns += make.entity("Ad group name" if other else "Ad Group Name", "Ad group ID", "ad_set")
    columns.append(make.day("By Day" if other else "Date"))
    if spec.level == "ad":
        columns += make.entity("Ad name" if other else "Ad Name", "Ad ID", "ad")
    columns += [
        make.money("Cost", "spend"),
        make.ratio(f"CPC{destination}", "spend", "clicks"),
        make.ratio("CPM", "spend", "impressions", scale=1000),
        make.count("Impressions" if other else "Impression", "impressions"),
        make.count(f"Clicks{destination}", "clicks"),
        make.ratio(f"CTR{destination}", "clicks", "impressions", scale=100),  # a percentage without its sign
        make.count("Conversions", "purchases"),
        make.ratio("CPA", "spend", "purchases"),
        make.label("Currency", spec.currency),
    ]
    return columns


class _Cells:
    """Makes the columns of one export: numbers and dates written the way its spec says."""

    def __init__(self, spec: ExportSpec) -> None:
        self.spec = spec
        default = "," if spec.platform == "google" else ""
        self.in_counts = default if spec.thousands is None else spec.thousands
        self.in_money = spec.thousands or ""

    def entity(self, name: str, id_: str, kind: Literal["campaign", "ad_set", "ad"]) -> list[Column]:
        spec, total = self.spec, math.prod(self.spec.entities)
        labels = names.entity_names(kind, total, multiline=spec.multiline_names)
        ids = names.entity_ids(spec.platform, kind, total)
        return [
            Column(name, "name", lambda facts: text.chosen(labels, getattr(facts, kind))),
            Column(id_, "id", lambda facts: text.chosen(ids, getattr(facts, kind))),
        ]

    def day(self, header: str, *, last: bool = False) -> Column:
        spec, first = self.spec, np.datetime64(self.spec.start)
        shift = spec.days - 1 if last else 0

        def cells(facts: Facts) -> pa.StringArray:
            match spec.dates:
                case "iso":
                    return text.iso_days(first, facts.day + shift)
                case "us":
                    return text.us_days(first, facts.day + shift)
                case "mixed":
                    days = facts.day + shift
                    return text.alternating(text.iso_days(first, days), text.us_days(first, days))

        return Column(header, "day", cells)

    def label(self, header: str, value: str) -> Column:
        return Column(header, "label", lambda facts: text.constant(value, len(facts)))

    def count(
        self, header: str, metric: str, *, decimals: bool = False, null_at_zero: bool = False
    ) -> Column:
        def cells(facts: Facts) -> pa.StringArray:
            values = getattr(facts, metric)
            if decimals:
                return text.hundredths(values * 100, self.in_counts, self.spec.decimal_mark)
            written = text.whole(values, self.in_counts)
            return text.blank_where(written, values == 0, self.spec.null_marker) if null_at_zero else written

        return Column(header, "impressions" if metric == "impressions" else "metric", cells)

    def money(self, header: str, metric: str) -> Column:
        def cells(facts: Facts) -> pa.StringArray:
            return text.hundredths(getattr(facts, metric), self.in_money, self.spec.decimal_mark)

        return Column(header, "spend" if metric == "spend" else "metric", cells)

    def ratio(self, header: str, part: str, of: str, *, scale: int = 1, suffix: str = "") -> Column:
        in_cents = part in ("spend", "value") and of not in ("spend", "value")

        def cells(facts: Facts) -> pa.StringArray:
            return text.ratio(
                getattr(facts, part),
                getattr(facts, of),
                text.Ratio(
                    scale / (100 if in_cents else 1), self.spec.null_marker, self.spec.decimal_mark, suffix
                ),
            )

        return Column(header, "metric", cells)


def _translated(header: str, spec: ExportSpec) -> str:
    return (
        names.HEADERS[spec.language]
        .get(header.replace(f"({spec.currency})", "(…)"), header)
        .replace("(…)", f"({spec.currency})")
    )
