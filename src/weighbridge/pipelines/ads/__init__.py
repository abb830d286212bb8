"""Daily exports of ad platforms: campaigns, ad sets, ads, and one row of figures per day.

A record is one day of one campaign, ad set or ad, depending on the level of the file. If the file has no
ids, an external id is made from the names, from the campaign down.

google, meta, tiktok  the layouts of their exports
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from weighbridge.model import upsert
from weighbridge.model.pipeline import Entity, Field, InHeader, NamePath, Pipeline, Ref
from weighbridge.pipelines.ads import google, meta, tiktok
from weighbridge.rules import n, v

SCOPE = ("client_id", "platform")

campaign = Entity(
    table="campaigns",
    scope=SCOPE,
    key=["external_id"],
    fields=[
        Field("external_id", normalise=[n.platform_id], required=True, otherwise=NamePath(["campaign.name"])),
        Field("name"),
        Field("status"),
        Field("objective"),
    ],
)
ad_set = Entity(
    table="ad_sets",
    scope=SCOPE,
    key=["external_id"],
    refs=[Ref("campaign_id", "campaign")],
    fields=[
        Field("external_id", normalise=[n.platform_id], otherwise=NamePath(["campaign.name", "ad_set.name"])),
        Field("name"),
        Field("status"),
    ],
)
ad = Entity(
    table="ads",
    scope=SCOPE,
    key=["external_id"],
    refs=[Ref("campaign_id", "campaign"), Ref("ad_set_id", "ad_set")],
    fields=[
        Field(
            "external_id",
            normalise=[n.platform_id],
            otherwise=NamePath(["campaign.name", "ad_set.name", "ad.name"]),
        ),
        Field("name"),
        Field("status"),
    ],
)
daily_metric = Entity(
    table="daily_metrics",
    scope=SCOPE,
    key=["metric_date", "campaign_id", "ad_set_id", "ad_id"],
    refs=[Ref("campaign_id", "campaign"), Ref("ad_set_id", "ad_set"), Ref("ad_id", "ad")],
    fields=[
        Field(
            "metric_date", date, normalise=[n.date], validate=[v.at_least(date(2000, 1, 1))], required=True
        ),
        Field("impressions", int, normalise=[n.integer], validate=[v.at_least(0)], additive=True),
        Field("clicks", int, normalise=[n.integer], validate=[v.at_least(0)], additive=True),
        Field("spend", Decimal, normalise=[n.money], additive=True),
        Field("currency", normalise=[n.upper], otherwise=InHeader("daily_metric.spend")),
        Field("conversions", Decimal, normalise=[n.number], additive=True),
        Field("conversion_value", Decimal, normalise=[n.money], additive=True),
        Field("reach", int, normalise=[n.integer], validate=[v.at_least(0)]),
    ],
    # A later export corrects figures: a blank cell means that the platform has withdrawn the figure.
    upsert=upsert.replace,
)
pipeline = Pipeline(
    name="ads",
    entities=[campaign, ad_set, ad, daily_metric],
    profiles=[meta.profile, google.profile, tiktok.profile],
    affected="metric_date",
)
