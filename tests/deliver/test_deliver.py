"""A run: claim, call, settle."""

from __future__ import annotations

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell


async def test_a_confirmed_sale_reaches_its_provider_with_proof(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    site = make_site()
    [sale] = sell(site)
    assert query("SELECT status, order_id FROM offline_conversion_queue WHERE sale_id = %s", (sale,)) == [
        ("QUEUED", "order-1")
    ]
    tally = await run()
    assert (tally.processed, tally.completed, tally.failed, tally.retry) == (1, 1, 0, 0)
    assert google.sent == ["order-1"]
    [row] = query(
        "SELECT status, uploaded_at IS NOT NULL, provider_request_id, provider_error_code, provider_error_category,"
        " last_error FROM offline_conversion_queue WHERE sale_id = %s",
        (sale,),
    )
    assert row == ("COMPLETED", True, "request-1", None, None, None)
    ledger = query(
        "SELECT phase, claimed_count, completed_count, failed_count, retry_count, provider_request_id,"
        " duration_ms IS NOT NULL FROM provider_upload_attempts ORDER BY phase DESC"
    )
    assert ledger == [
        ("STARTED", 1, None, None, None, None, False),
        ("FINISHED", None, 1, 0, 0, "request-1", True),
    ]
    assert query(
        "SELECT attempts_total, completed_total, failed_total, retry_total FROM provider_upload_metrics"
    ) == [(1, 1, 0, 0)]
    assert query("SELECT outcome FROM weighbridge.attempts WHERE queue = 'deliveries'") == [("done",)]
