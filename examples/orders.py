"""Orders of a web shop, with a table of their own.

    WEIGHBRIDGE_PIPELINES=examples.orders weighbridge db migrate      # makes public.shop_orders
    WEIGHBRIDGE_PIPELINES=examples.orders weighbridge load orders.csv --pipeline orders

A package that should be found without the setting declares an entry point instead:

    [project.entry-points."weighbridge.pipelines"]
    orders = "examples.orders:pipeline"
"""

from datetime import date
from decimal import Decimal

from weighbridge import Entity, Field, Pipeline, n, upsert, v

order = Entity(
    table="shop_orders",
    key=["order_id"],
    fields=[
        Field("order_id", header=["Order", "Order no."], normalise=[n.strip, n.upper], required=True),
        Field("ordered_on", date, header=["Date", "Ordered"], normalise=[n.date], required=True),
        Field("amount", Decimal, header=["Amount", "Total"], normalise=[n.money], validate=[v.at_least(0)]),
        Field(
            "state",
            header=["State", "Status"],
            normalise=[n.lower],
            validate=[v.one_of("open", "paid", "sent")],
        ),
    ],
    upsert=upsert.keep_known_values,
)
pipeline = Pipeline(name="orders", entities=[order], min_valid=0.8)
