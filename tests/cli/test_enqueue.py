"""`weighbridge conversions enqueue`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.cli.conftest import Command


def test_sales_from_before_their_site_had_a_provider_are_queued(
    main: Command, query: Any, workspace: UUID
) -> None:
    [(site,)] = query(
        "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, 'shop', '{webhook}') RETURNING id",
        (workspace,),
    )
    query(
        "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, gclid, status)"
        " SELECT %s, %s, n, now() - n * INTERVAL '30 days', 'g', CASE n WHEN 3 THEN 'DRAFT' ELSE 'CONFIRMED' END"
        " FROM generate_series(1, 4) n",
        (workspace, site),
    )
    query("UPDATE sites SET providers = '{google_ads, webhook}'")
    enqueue = ("conversions", "enqueue", "shop", "--yes", "--json")
    assert main(*enqueue, "--since", "2200-01-01").json == {"queued": 0}
    assert main(*enqueue).json == {"queued": 2}  # neither the draft nor what has expired
    assert main(*enqueue).json == {"queued": 0}
    assert query(
        "SELECT order_id FROM offline_conversion_queue WHERE provider_key = 'google_ads' ORDER BY 1"
    ) == [
        ("1",),
        ("2",),
    ]
    refused = main("conversions", "enqueue", "shop", "--provider", "gogle_ads", "--yes")
    assert (refused.code, "google_ads" in refused.err) == (2, True)
