"""A provider of one's own: a CRM that takes sales as JSON and says of each what is wrong with it.

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
    clicks = ("gclid", "fbclid")  # the best first: of each sale it gets the first that the sale has
    window = timedelta(days=30)  # older sales fail as EXPIRED; None: any age
    window_from = "event"
    needs = (Needed("url", "where it takes sales", secret=False), Needed("token", "from its settings"))

    async def send(self, batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        sales = [{"order": each.order_id, "click": each.click_id} for each in batch.conversions]
        headers = {"authorization": f"Bearer {batch.credentials['token']}"}
        body = {"sales": sales, "check_only": batch.dry_run}
        response = await answers.post(http, batch.credentials["url"], headers=headers, json=body)
        answers.raise_for_retryable(response, batch.now)  # 429, 5xx: all of them are tried again
        status = response.status_code
        if status >= 400:
            category = Category.AUTH if status in (401, 403) else Category.VALIDATION
            refused = Outcome.failed(f"HTTP_{status}", f"The CRM refuses the request ({status}).", category)
            return answers.whole(batch, refused)
        said = answers.json_of(response)
        wrong = {each["order"]: each["code"] for each in said["refused"]}
        return [
            Outcome.failed(wrong[each.order_id], f"The CRM refuses it ({wrong[each.order_id]}).")
            if each.order_id in wrong
            else Outcome.completed(said["receipt"])
            for each in batch.conversions
        ]


crm = Crm()
