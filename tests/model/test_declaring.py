"""Declarations are checked when they are built, and the error says what to mend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weighbridge
from weighbridge import ConfigError, Entity, Field, NamePath, Pipeline, Profile, Ref


def _entity(**changes: Any) -> Entity:
    values = {"table": "judgments", "key": ["case_number"], "fields": [Field("case_number"), Field("county")]}
    return Entity(**{**values, **changes})


WRONG: list[tuple[Callable[[], object], str]] = [
    (
        lambda: _entity(key=["case_no"]),
        "Entity judgments: key 'case_no' is not a field; did you mean 'case_number'?",
    ),
    (lambda: _entity(key=[]), "Entity judgments: expected a key of at least one field, got none"),
    (
        lambda: _entity(fields=[Field("case_number"), Field("case_number")]),
        "Entity judgments: 'case_number' is declared twice",
    ),
    (
        lambda: _entity(scope=["client"]),
        "Entity judgments: scope 'client' is not one of client_id, platform; did you mean 'client_id'?",
    ),
    (lambda: Field("Case Number"), "Field 'Case Number': expected lower-case letters"),
    (lambda: Field("workspace_id"), "Field workspace_id: the name is Weighbridge's own; choose another"),
    (lambda: Field("amount", float), "Field amount: expected a type of str, int, Decimal, date"),
    (lambda: Pipeline("judgments", []), "Pipeline judgments: expected at least one entity, got none"),
    (lambda: Pipeline("judgments", [_entity()], accepts=["xml"]), "accepts 'csv' and 'json', got 'xml'"),
    (
        lambda: Pipeline("judgments", [_entity()], min_valid=90),
        "min_valid expected a share from 0 to 1, got 90",
    ),
    (
        lambda: Pipeline("judgments", [_entity()], affected="filed"),
        "Pipeline judgments: affected 'filed' is not a field of judgments",
    ),
    (
        lambda: Pipeline("twice", [_entity(), _entity()]),
        "Pipeline twice: entity 'judgment' is declared twice",
    ),
    (
        lambda: Pipeline("j", [_entity(refs=[Ref("plaintiff_id", "plaintif")])]),
        "'plaintiff_id' refers to 'plaintif', which is no entity before it",
    ),
    (
        lambda: Pipeline(
            "j", [_entity(fields=[Field("case_number", otherwise=NamePath(["judgment.conty"]))])]
        ),
        "'judgment.conty' in its otherwise is not a field",
    ),
    (
        lambda: Pipeline("j", [_entity()], profiles=[Profile("p", headers={"judgment.countty": ["County"]})]),
        "Profile p: 'judgment.countty' is not a field of pipeline j; did you mean 'judgment.county'?",
    ),
]


@pytest.mark.parametrize(("declare", "sentence"), WRONG)
def test_a_wrong_declaration_says_what_was_expected_and_what_came(
    declare: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        declare()
    assert sentence in str(caught.value)


def test_a_declaration_is_frozen() -> None:
    with pytest.raises(AttributeError):
        _entity().table = "other"  # type: ignore[misc]


def test_the_public_names_are_these() -> None:
    assert set(weighbridge.__all__) == {
        "ConfigError", "Entity", "Field", "FileRefused", "LeaseLost", "Made", "NamePath", "Normaliser", "Pipeline",
        "Profile", "Ref", "Refused", "RequestRefused", "RetryLater", "Validator", "WeighbridgeError",
        "__version__", "n", "upsert", "v",
    }  # fmt: skip
