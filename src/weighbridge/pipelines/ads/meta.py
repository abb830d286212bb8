"""Meta Ads Manager."""

from __future__ import annotations

from weighbridge.model.profile import Daily, Profile

profile = Profile(
    name="meta",
    headers={
        "campaign.external_id": ["Campaign ID"],
        "campaign.name": ["Campaign name"],
        "campaign.status": ["Campaign delivery"],
        "ad_set.external_id": ["Ad set ID"],
        "ad_set.name": ["Ad set name"],
        "ad_set.status": ["Ad set delivery"],
        "ad.external_id": ["Ad ID"],
        "ad.name": ["Ad name"],
        "ad.status": ["Ad delivery"],
        "daily_metric.metric_date": ["Day"],
        "daily_metric.impressions": ["Impressions"],
        "daily_metric.clicks": ["Clicks (all)", "Link clicks"],
        "daily_metric.spend": ["Amount spent"],
        "daily_metric.currency": ["Currency"],
        "daily_metric.conversions": ["Purchases"],
        "daily_metric.conversion_value": ["Purchases conversion value"],
        "daily_metric.reach": ["Reach"],
    },
    nulls=["-", "--"],
    nameless_totals=True,
    daily=Daily(
        field="daily_metric.metric_date",
        starts=["Reporting starts"],
        ends=["Reporting ends"],
        longer=["Week", "Month"],
        hint="In Ads Manager choose Breakdown, By time, Day, and export again.",
    ),
)
