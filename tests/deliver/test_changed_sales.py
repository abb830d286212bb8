"""A sale that changes while its row is in a call, or after it failed."""

from __future__ import annotations

from typing import Any

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.model.delivery import ProviderTransientError


async def test_a_sale_canceled_during_a_failing_call_is_not_sent_again(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    sell(make_site())

    def cancel_and_fail(_: Any) -> Any:
        query("UPDATE sales SET status = 'CANCELED'")
        raise ProviderTransientError("down")

    google.answer = cancel_and_fail
    await run()
    google.answer = None
    clock.forward(hours=1)
    await run()
    assert len(google.batches) == 1  # it was sent again, and COMPLETED
    assert query("SELECT status, provider_error_code FROM offline_conversion_queue") == [
        ("FAILED", "SALE_CANCELED")
    ]


async def test_a_failed_row_of_a_canceled_sale_cannot_be_requeued(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, workspace: Any
) -> None:
    from weighbridge.model.delivery import Outcome

    sell(make_site())
    google.answer = lambda batch: [Outcome.failed("INVALID_GCLID", "no")] * len(batch.conversions)
    await run()
    query("UPDATE sales SET status = 'CANCELED'")
    google.answer = None
    query("SELECT weighbridge.requeue_deliveries(%s, NULL, NULL, NULL, NULL, NULL, 'x')", (workspace,))
    await run()
    assert len(google.batches) == 1


async def test_a_sale_that_is_confirmed_again_is_sent(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    sell(make_site())
    query("UPDATE sales SET status = 'CANCELED'")
    query("UPDATE sales SET status = 'CONFIRMED'")
    await run()
    assert query("SELECT status FROM offline_conversion_queue") == [("COMPLETED",)]


async def test_a_sale_that_changed_during_a_failing_call_is_sent_with_its_current_values(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    sell(make_site())

    def change_and_fail(_: Any) -> Any:
        query("UPDATE sales SET value = 99")
        raise ProviderTransientError("down")

    google.answer = change_and_fail
    await run()
    google.answer = None
    clock.forward(hours=1)
    await run()
    assert google.batches[1].conversions[0].value == 99


async def test_a_corrected_sale_is_sent_with_its_current_values(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    from weighbridge.model.delivery import Outcome

    sell(make_site())
    google.answer = lambda batch: [Outcome.failed("INVALID_GCLID", "No such click.")] * len(batch.conversions)
    await run()
    query("UPDATE sales SET updated_at = now()")
    assert query("SELECT status FROM offline_conversion_queue") == [("FAILED",)]  # nothing of it has changed
    query("UPDATE sales SET gclid = 'the right one'")
    google.answer = None
    await run()
    assert google.batches[1].conversions[0].click_id == "the right one"
    assert query("SELECT status, provider_error_code FROM offline_conversion_queue") == [("COMPLETED", None)]


def test_a_sale_of_another_workspace_with_the_same_id_changes_nothing(
    make_site: MakeSite, sell: Sell, query: Query
) -> None:
    from uuid import uuid4

    [sale] = sell(make_site())
    other = make_site(workspace_id=uuid4())
    sell(other, id=sale, status="DRAFT")
    query("UPDATE sales SET status = 'CANCELED' WHERE site_id = %s", (other,))
    assert query("SELECT status FROM offline_conversion_queue") == [("QUEUED",)]


def test_every_row_can_be_read_completely(make_site: MakeSite, sell: Sell, query: Query) -> None:
    sell(make_site())
    [row] = query("SELECT * FROM offline_conversion_queue")
    assert row


def test_an_address_cannot_be_written_into_a_sale(make_site: MakeSite, sell: Sell) -> None:
    import psycopg
    import pytest

    with pytest.raises(psycopg.errors.CheckViolation, match="sales_only_digests"):
        sell(make_site(), user_data='{"email": "ann@example.com"}')
