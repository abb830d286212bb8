"""Declarations are checked when they are built, and the error says what to fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weighbridge
from weighbridge import ConfigError, Entity, Field, NamePath, Pipeline, Profile, Ref, upsert


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
        "Entity judgments: scope 'client' is not one of client_id, platform, project_id; did you mean 'client_id'?",
    ),
    (lambda: Field("Case Number"), "Field 'Case Number': expected lower-case letters"),
    (
        lambda: Field("workspace_id"),
        "Field workspace_id: the name is reserved by Weighbridge; choose another",
    ),
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
    (
        lambda: Pipeline("j", [_entity()], headerless="conty"),
        "Pipeline j: headerless 'conty' is not a field of judgments; did you mean 'county'?",
    ),
    (
        lambda: Pipeline("j", [_entity()], leading_totals=-1),
        "Pipeline j: leading_totals expected 0 or more, got -1",
    ),
    (
        lambda: Pipeline("j", [_entity(upsert=upsert.keep_greatest), _entity(table="others")]),
        "Entity judgments: upsert.keep_greatest is only for the pipeline's last entity, "
        "with all its refs in the key; got an earlier entity",
    ),
    (
        lambda: Pipeline(
            "j",
            [
                _entity(table="courts"),
                _entity(refs=[Ref("court_id", "court")], upsert=upsert.keep_greatest),
            ],
        ),
        "with all its refs in the key; got court_id",
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
        "ConfigError", "Entity", "Field", "FileRefused", "LeaseLost", "Computed", "NamePath", "Normaliser",
        "ComputedDefault",
        "Pipeline", "Profile", "Ref", "Refused", "RequestRefused", "RetryLater", "Validator", "WeighbridgeError",
        "__version__", "n", "upsert", "v",
    }  # fmt: skip
