"""Ids are cut from the hash of the natural key: the same key, the same id, in every file."""

from __future__ import annotations

import hashlib
import unicodedata
from datetime import date
from uuid import UUID

import pytest

from rules.checking import SCOPE, check_text, meta
from weighbridge.model.pipeline import Entity, Field, Pipeline, Ref
from weighbridge.model.upload import Scope


def id_of(*parts: str) -> tuple[UUID, bytes]:
    """As the specification says it, without any of our SQL."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    cut = bytearray(digest[:16])
    cut[6] = cut[6] & 0x0F | 0x80
    cut[8] = cut[8] & 0x3F | 0x80
    return UUID(bytes=bytes(cut)), digest


@pytest.mark.parametrize("client", [UUID(int=3), None])
def test_an_id_is_cut_from_entity_workspace_scope_and_key(client: UUID | None) -> None:
    scope = Scope(SCOPE.upload_id, SCOPE.workspace_id, client, "meta")
    header = "Day,Campaign ID,Campaign name,Ad set ID,Ad ID,Impressions"
    outcome = check_text(meta("2025-07-01,11,Spring,22,33,5", header=header), scope=scope)
    tenant = (str(scope.workspace_id), str(client) if client else "", "meta")
    ids = {}
    for entity, key in (("campaign", "11"), ("ad_set", "22"), ("ad", "33")):
        [row] = outcome.rows[entity]
        ids[entity], digest = id_of(entity, *tenant, key)
        assert (row["id"], row["natural_key_hash"]) == (ids[entity], digest)
        assert (row["id"].version, row["id"].variant) == (8, "specified in RFC 4122")
    [metric] = outcome.metrics
    assert [metric[f"{entity}_id"] for entity in ids] == list(ids.values())
    assert outcome.rows["ad"][0]["ad_set_id"] == ids["ad_set"]
    assert outcome.rows["ad"][0]["campaign_id"] == outcome.rows["ad_set"][0]["campaign_id"] == ids["campaign"]


def test_without_ids_an_external_id_is_made_of_the_folded_path_of_names() -> None:
    text = "Campaign name,Ad Group Name,Ad Name,Date,Cost\nSpring ,Ｇroup  A,É,2025-07-01,1\n"
    outcome = check_text(text, "tiktok")

    def made_of(*names: str) -> str:
        folded = (" ".join(unicodedata.normalize("NFKC", name).lower().split()) for name in names)
        return "name:" + hashlib.sha256("\x1f".join(folded).encode()).hexdigest()[:32]

    assert outcome.rows["campaign"][0]["external_id"] == made_of("spring")
    assert outcome.rows["ad_set"][0]["external_id"] == made_of("spring", "group a")
    assert outcome.rows["ad"][0]["external_id"] == made_of("spring", "group a", "é")
    assert outcome.rows["ad_set"][0]["name"] == "Ｇroup  A"


def test_names_that_fold_alike_are_one_entity() -> None:
    text = (
        "Campaign name,Date,Cost\nSpring Sale,2025-07-01,1\nSPRING  sale,2025-07-02,2\nAutumn,2025-07-02,3\n"
    )
    outcome = check_text(text, "tiktok")
    assert outcome.counts["campaign"] == 2
    assert len({row["campaign_id"] for row in outcome.metrics}) == 2


def test_the_same_ad_name_in_two_ad_groups_is_two_ads() -> None:
    text = "Campaign name,Ad Group Name,Ad Name,Date,Cost\nA,B,X,2025-07-01,1\nA,C,X,2025-07-01,1\n"
    assert check_text(text, "tiktok").counts == {"campaign": 1, "ad_set": 2, "ad": 2, "daily_metric": 2}


def test_an_id_missing_where_the_file_has_ids_is_not_made_up() -> None:
    header = "Day,Campaign ID,Ad set ID,Ad set name,Impressions"
    outcome = check_text(meta("2025-07-01,11,22,Set,5", "2025-07-02,11,,Set,5", header=header))
    assert outcome.codes == ["missing_value"]
    assert outcome.rejections[0]["column_name"] == "Ad set ID"


def test_a_record_of_the_campaign_itself_has_no_ad_set_and_no_ad() -> None:
    header = "Day,Campaign ID,Ad set ID,Ad set name,Ad ID,Impressions"
    outcome = check_text(meta("2025-07-01,11,,,,5", "2025-07-01,11,22,Set,33,4", header=header))
    refs = [(row["ad_set_id"] is None, row["ad_id"] is None, row["impressions"]) for row in outcome.metrics]
    assert sorted(refs) == [(False, False, 4), (True, True, 5)]


def test_a_key_may_hold_a_ref_a_date_and_a_number() -> None:
    shop = Entity("shops", key=["code"], fields=[Field("code", int)])
    visit = Entity(
        "visits", key=["shop_id", "day"], refs=[Ref("shop_id", "shop")], fields=[Field("day", date)]
    )
    sale = Entity("sales", key=["visit_id"], refs=[Ref("visit_id", "visit")], fields=[Field("total", int)])
    pipeline = Pipeline("shops", [shop, visit, sale])
    text = "shop code,visit day,total\n7,2025-07-01,5\n8,2025-07-01,6\n"
    outcome = check_text(text, None, pipeline=pipeline)
    workspace = str(SCOPE.workspace_id)
    first_shop, _ = id_of("shop", workspace, "7")
    first_visit, digest = id_of("visit", workspace, str(first_shop), "2025-07-01")
    visits = {row["id"]: row for row in outcome.rows["visit"]}
    assert visits[first_visit]["natural_key_hash"] == digest
    assert visits[first_visit]["shop_id"] == first_shop
    assert first_visit in {row["visit_id"] for row in outcome.rows["sale"]}


def test_a_key_may_be_a_ref_alone() -> None:
    shop = Entity("shops", key=["code"], fields=[Field("code", int)])
    owner = Entity("owners", key=["shop_id"], refs=[Ref("shop_id", "shop")], fields=[Field("name")])
    sale = Entity("sales", key=["number"], refs=[Ref("owner_id", "owner")], fields=[Field("number", int)])
    text = "shop code,owner name,number\n7,Ann,1\n7,Anna,2\n,Nobody,3\n"
    outcome = check_text(text, None, pipeline=Pipeline("owners", [shop, owner, sale]))
    workspace = str(SCOPE.workspace_id)
    first_shop, _ = id_of("shop", workspace, "7")
    [row] = outcome.rows["owner"]
    assert (row["id"], row["name"]) == (id_of("owner", workspace, str(first_shop))[0], "Anna")
    assert [sale["owner_id"] for sale in outcome.rows["sale"]] == [row["id"], row["id"], None]


def test_spreadsheet_mangled_ids_are_rejected_as_such() -> None:
    outcome = check_text(meta("2025-07-01,1.20253E+17,A,5,1", "2025-07-01,120253000000000000.0,B,5,1"))
    assert outcome.codes == ["mangled_id", "mangled_id"]
    assert outcome.rejections[0]["message"] == (
        "campaign.external_id: expected an id with all its digits, got '1.20253E+17' (line 2). A spreadsheet program "
        "has rounded it. Export the file again, and do not open it in such a program."
    )


def test_an_id_of_something_else_than_digits_is_rejected() -> None:
    assert check_text(meta("2025-07-01,c:11,A,5,1")).codes == ["bad_id"]
