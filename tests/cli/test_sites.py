"""`weighbridge sites`: made, listed, found by name, changed."""

from __future__ import annotations

from uuid import uuid4

from .conftest import Command
from .outbound import delivering, google, sell, shop  # noqa: F401

OTHER = str(uuid4())


def test_a_site_is_created_listed_and_changed(main: Command) -> None:
    made = main("sites", "create", "Shop", "--provider", "meta_capi", "--provider", "google_ads")
    assert made.code == 0
    site = made.out.strip()
    assert f"weighbridge providers credentials {site} google_ads" in made.err
    [listed] = main("sites", "list", "--json").json
    assert (listed["site_id"], listed["name"], listed["providers"]) == (
        site,
        "Shop",
        ["google_ads", "meta_capi"],
    )
    assert "Shop" in main("sites", "list").out
    assert main("sites", "list", "--workspace", OTHER, "--json").json == []
    changed = main("sites", "change", "Shop", "--name", "Store", "--provider", "webhook", "--json").json
    assert (changed["site_id"], changed["name"], changed["providers"]) == (site, "Store", ["webhook"])
    assert main("sites", "change", site, "--no-providers").out.endswith("providers: none.\n")


def test_without_a_provider_it_is_the_data_manager(main: Command) -> None:
    assert main("sites", "create", "Shop", "--json").json["providers"] == ["google_datamanager"]


def test_a_name_is_taken_once_in_a_workspace(main: Command) -> None:
    assert main("sites", "create", "Shop").code == 0
    again = main("sites", "create", "Shop")
    assert (again.code, again.err.startswith("weighbridge: The workspace already has a site 'Shop'")) == (
        1,
        True,
    )
    assert main("sites", "create", "Store").code == 0
    assert main("sites", "change", "Store", "--name", "Shop").code == 1
    assert main("sites", "create", "Shop", "--workspace", OTHER).code == 0
    both = main("sites", "show", "Shop")
    assert (both.code, "Use its id, or add --workspace." in both.err) == (1, True)
    assert main("sites", "show", "Shop", "--workspace", OTHER, "--json").json["workspace_id"] == OTHER


def test_a_misspelled_name_is_reported_with_a_suggestion(main: Command) -> None:
    assert main("sites", "create", "Shop").code == 0
    near = main("sites", "show", "Shp")
    assert (near.code, "there is no site 'Shp'; did you mean 'Shop'?" in near.err) == (1, True)
    wrong = main("sites", "create", "Store", "--provider", "gogle_ads")
    assert (wrong.code, "got 'gogle_ads'; did you mean 'google_ads'?" in wrong.err) == (2, True)
    nothing = main("sites", "change", "Shop")
    assert (nothing.code, "expected a change" in nothing.err) == (2, True)
    for arguments in (["create", ""], ["create", "a\nb"], ["change", "Shop", "--name", "x" * 201]):
        assert main("sites", *arguments).code == 2


def test_a_site_shows_how_it_fares_with_each_provider(delivering: Command, shop: str) -> None:  # noqa: F811
    assert delivering("sites", "change", shop, "--provider", "google_ads", "--provider", "webhook").code == 0
    shown = delivering("sites", "show", "Shop", "--json").json
    standing = {group["provider"]: group["credentials"] for group in shown["groups"]}
    assert standing["webhook"] is None
    assert (standing["google_ads"]["version"], standing["google_ads"]["key_known"]) == (1, True)
    assert "google_ads" in delivering("sites", "show", "Shop").out
