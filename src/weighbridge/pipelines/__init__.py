"""The built-in pipelines, and those of users: in modules that a setting names, or in installed packages.

ads/          daily exports of ad platforms
keywords/     search terms
judgments/    court judgments
conversions   sales to report to ad platforms
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weighbridge.model.errors import ConfigError, did_you_mean
from weighbridge.model.imports import explained, imported, installed
from weighbridge.model.pipeline import Pipeline
from weighbridge.pipelines import ads, conversions, judgments, keywords

GROUP = "weighbridge.pipelines"
BUILT_IN: dict[str, Pipeline] = {
    each.pipeline.name: each.pipeline for each in (ads, conversions, judgments, keywords)
}


def find(modules: Sequence[str] = ()) -> dict[str, Pipeline]:
    """All pipelines by name. `modules` are "shop.pipes" or "shop.pipes:orders", as in the setting."""
    found = dict(BUILT_IN)
    for origin, pipeline in [*_from_modules(modules), *_from_packages()]:
        if found.get(pipeline.name, pipeline) is not pipeline:
            raise ConfigError(
                f"{origin}: there is already a pipeline called '{pipeline.name}'; choose another name."
            )
        found[pipeline.name] = pipeline
    return found


def _from_modules(modules: Sequence[str]) -> Iterator[tuple[str, Pipeline]]:
    for named in modules:
        module_name, _, attribute = named.partition(":")
        module = imported(module_name, "WEIGHBRIDGE_PIPELINES")
        declared = {name: value for name, value in vars(module).items() if isinstance(value, Pipeline)}
        if attribute and attribute not in declared:
            raise ConfigError(
                f"WEIGHBRIDGE_PIPELINES: '{attribute}' is not a Pipeline in {module_name}"
                f"{did_you_mean(attribute, declared) or '.'}"
            )
        if not declared:
            raise ConfigError(f"WEIGHBRIDGE_PIPELINES: {module_name} contains no Pipeline.")
        yield from ((named, value) for name, value in declared.items() if attribute in ("", name))


def _from_packages() -> Iterator[tuple[str, Pipeline]]:
    for entry in installed(GROUP):
        with explained(f"Entry point {entry.name} of {GROUP}: cannot import '{entry.value}'"):
            value = entry.load()
        if not isinstance(value, Pipeline):
            raise ConfigError(
                f"Entry point {entry.name} of {GROUP}: expected a Pipeline, got {type(value).__name__}."
            )
        yield f"entry point {entry.name}", value
