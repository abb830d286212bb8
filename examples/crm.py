"""A provider of your own: a CRM that receives sales as JSON and reports an error for each refused one.

    export WEIGHBRIDGE_PROVIDERS=examples.crm
    weighbridge sites create Shop --provider crm
    weighbridge providers credentials Shop crm crm.json      # {"url": "https://crm.example/sales", "token": "…"}

A package that should be found without the setting declares an entry point instead:

    [project.entry-points."weighbridge.providers"]
    crm = "examples.crm:crm"
"""

from datetime import timedelta

import httpx

from weighbridge.delivery.providers import answers
from weighbridge.delivery.providers.base import Batch, Needed
from weighbridge.model.delivery import Category, Outcome


class Crm:
    name = "crm"
    max_batch = 500
    clicks = ("gclid", "fbclid")  # best first: each sale is sent with the first of these that it has
    window = timedelta(days=30)  # older sales fail as EXPIRED; None: any age
    window_from = "event"
    needs = (
        Needed("url", "address that receives sales", secret=False),
        Needed("token", "from the CRM's settings"),
    )

    async def send(self, batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        sales = [{"order": each.order_id, "click": each.click_id} for each in batch.conversions]
        headers = {"authorization": f"Bearer {batch.credentials['token']}"}
        body = {"sales": sales, "check_only": batch.dry_run}
        response = await answers.post(http, batch.credentials["url"], headers=headers, json=body)
        answers.raise_for_retryable(response, batch.now)  # 429, 5xx: all rows are retried
        status = response.status_code
        if status >= 400:
            category = Category.AUTH if status in (401, 403) else Category.VALIDATION
            refused = Outcome.failed(f"HTTP_{status}", f"The CRM refuses the request ({status}).", category)
            return answers.whole(batch, refused)
        answer = answers.json_of(response)
        errors = {each["order"]: each["code"] for each in answer["refused"]}
        return [
            Outcome.failed(errors[each.order_id], f"The CRM refuses the sale ({errors[each.order_id]}).")
            if each.order_id in errors
            else Outcome.completed(answer["receipt"])
            for each in batch.conversions
        ]


crm = Crm()
