"""The numbers behind a generated export: one row per entity and day, as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Facts:
    """Equally long columns; entities are numbered from 0 over the whole export, money is in cents."""

    day: Ints
    campaign: Ints
    ad_set: Ints
    ad: Ints
    impressions: Ints
    reach: Ints
    clicks: Ints
    purchases: Ints
    spend: Ints
    value: Ints

    def __len__(self) -> int:
        return len(self.day)

    def take(self, rows: Ints | slice) -> Facts:
        return Facts(*(getattr(self, column.name)[rows] for column in fields(self)))

    def total(self) -> Facts:
        """The totals row that a platform prints below or above the others."""
        zero = np.zeros(1, np.int64)
        sums = {name: getattr(self, name).sum(keepdims=True) for name in METRICS}
        return Facts(day=zero, campaign=zero, ad_set=zero, ad=zero, **sums)

    def with_repeats(self, equal: int, conflicting: int) -> Facts:
        """The same rows, then repeats of the first ones: `equal` as they were, `conflicting` altered."""
        repeated = self.take(np.concatenate([np.arange(len(self)), np.arange(equal + conflicting)]))
        if not conflicting:
            return repeated
        impressions = repeated.impressions.copy()
        impressions[-conflicting:] += 7
        return replace(repeated, impressions=impressions)


METRICS = ("impressions", "reach", "clicks", "purchases", "spend", "value")


def make_facts(entities: tuple[int, int, int], days: int, seed: int) -> Facts:
    """Plausible numbers for campaigns × ad sets × ads × days: busy and quiet ads, busy and quiet days."""
    campaigns, ad_sets, ads = entities
    random = np.random.default_rng(seed)
    leaves = campaigns * ad_sets * ads
    ad = np.repeat(random.permutation(leaves), days)  # platforms list entities by spend, not by name
    day = np.tile(np.arange(days), leaves)

    busy = random.lognormal(6.5, 1.2, leaves)[ad] * random.uniform(0.6, 1.4, days)[day]
    impressions = random.poisson(busy)
    reach = (impressions / random.uniform(1.05, 1.9, len(ad))).astype(np.int64)
    clicks = random.binomial(impressions, random.uniform(0.004, 0.03, leaves)[ad])
    purchases = random.binomial(clicks, 0.06)
    spend = (impressions * random.uniform(0.4, 2.2, len(ad))).astype(np.int64)
    value = purchases * random.integers(1_500, 12_000, len(ad))
    return Facts(
        day=day,
        campaign=ad // (ad_sets * ads),
        ad_set=ad // ads,
        ad=ad,
        impressions=impressions,
        reach=reach,
        clicks=clicks,
        purchases=purchases,
        spend=spend,
        value=value,
    )
