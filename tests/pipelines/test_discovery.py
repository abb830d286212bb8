"""Where pipelines come from: built in, from a module named in a setting, from an installed package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from weighbridge import pipelines
from weighbridge.model import find_declarations
from weighbridge.model.errors import ConfigError
from weighbridge.model.pipeline import Entity, Field, Pipeline

ORDERS = Pipeline("orders", [Entity("orders", key=["number"], fields=[Field("number")])])
ALSO_ADS = Pipeline("ads", ORDERS.entities)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def make(**contents: object) -> str:
        made = ModuleType("shop_pipes")
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, "shop_pipes", made)
        return "shop_pipes"

    return make


def test_the_built_in_ones_are_always_there() -> None:
    assert pipelines.find() == pipelines.BUILT_IN
    assert set(pipelines.BUILT_IN) == {"ads", "conversions", "judgments", "keywords"}


@pytest.mark.parametrize("suffix", ["", ":orders"])
def test_a_module_gives_its_pipelines(module: Callable[..., str], suffix: str) -> None:
    assert pipelines.find([module(orders=ORDERS) + suffix])["orders"] is ORDERS


def test_a_package_gives_its_pipelines(module: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("orders", f"{module(orders=ORDERS)}:orders", pipelines.GROUP)
    monkeypatch.setattr(find_declarations, "installed", lambda group: [point])
    assert pipelines.find()["orders"] is ORDERS


def test_a_pipeline_found_twice_is_one(module: Callable[..., str]) -> None:
    name = module(orders=ORDERS)
    assert pipelines.find([name, f"{name}:orders"])["orders"] is ORDERS


@pytest.mark.parametrize(
    ("contents", "suffix", "sentence"),
    [
        ({"orders": ORDERS}, ":order", "'order' is not a Pipeline in shop_pipes; did you mean 'orders'?"),
        ({}, "", "shop_pipes contains no Pipeline"),
        ({"mine": ALSO_ADS}, "", "there is already a pipeline called 'ads'"),
    ],
)
def test_what_cannot_work_is_said_before_any_work(
    module: Callable[..., str], contents: dict[str, object], suffix: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        pipelines.find([module(**contents) + suffix])
    assert sentence in str(refused.value)


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot import 'no_such_module'"):
        pipelines.find(["no_such_module"])
