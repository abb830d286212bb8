"""The built-in pipelines, and those of users: in modules that a setting names, or in installed packages.

ads/          daily exports of ad platforms
keywords/     search terms
judgments/    court judgments
conversions   sales to report to ad platforms
"""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.find_declarations import Declarations
from weighbridge.model.pipeline import Pipeline
from weighbridge.pipelines import ads, conversions, judgments, keywords

GROUP = "weighbridge.pipelines"
BUILT_IN: dict[str, Pipeline] = {
    each.pipeline.name: each.pipeline for each in (ads, conversions, judgments, keywords)
}


_DECLARATIONS = Declarations[Pipeline](
    "Pipeline", "WEIGHBRIDGE_PIPELINES", GROUP, is_one=lambda value: isinstance(value, Pipeline)
)


def find(modules: Sequence[str] = ()) -> dict[str, Pipeline]:
    """All pipelines by name. `modules` are "shop.pipes" or "shop.pipes:orders", as in the setting."""
    return _DECLARATIONS.add_to(dict(BUILT_IN), modules)
