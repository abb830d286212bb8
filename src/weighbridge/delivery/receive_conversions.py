"""Conversions from the API: validated and written as sales, which also creates queue rows.

If one of them is invalid, nothing is written. E-mail addresses and phone numbers are stored only as digests, and no
message repeats them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal
from uuid import UUID

from weighbridge.delivery import sites
from weighbridge.delivery.context import Context
from weighbridge.delivery.sales import QueuedDelivery, Sale, deliveries_of, sale_ids, write_sales
from weighbridge.model.delivery import CLICKS
from weighbridge.model.digests import digests
from weighbridge.model.errors import Refused, RequestRefused, did_you_mean
from weighbridge.observe.redact import quote_input
from weighbridge.postgres import clock, roles
from weighbridge.postgres.errors import RowFault
from weighbridge.uploads.check_request import HOW_TO_MAKE_A_SITE

FIELDS = (
    *("site_id", "order_id", "occurred_at", "value", "currency", *CLICKS, "clicked_at", "email", "phone"),
    "conversation_id",
)
MOST = 1000  # at once
LONGEST_ORDER, LONGEST_CLICK = 200, 512
AHEAD = timedelta(days=1)  # tolerance for a sender's clock; conversions later than this are refused
FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_CLICK = re.compile(r"[!-~]+")
_CURRENCY = re.compile(r"[A-Z]{3}")
_TOO_MUCH = Decimal(10) ** 12
_STEP = Decimal("0.000001")


Result = Literal["created", "updated", "duplicate"]
# By whether the row was inserted; None: it did not change.
_RESULTS: dict[bool | None, Result] = {True: "created", False: "updated", None: "duplicate"}


@dataclass(frozen=True)
class ConversionResult:
    """The result for one conversion."""

    sale: Sale
    sale_id: UUID
    result: Result
    deliveries: tuple[QueuedDelivery, ...]


async def convert(
    ctx: Context, workspace_id: UUID, entries: Sequence[tuple[str, Any]]
) -> list[ConversionResult]:
    """Write conversions, each with its position in the request for error messages.

    RequestRefused if any of them is invalid: then none is written.
    """
    async with ctx.db.tx() as tx:
        now = await clock.now(tx)
    sales = [checked(prefix, conversion, now) for prefix, conversion in entries]
    _refuse_repeats([(prefix, sale) for (prefix, _), sale in zip(entries, sales, strict=True)])
    keys = [sale.key for sale in sales]
    try:
        async with ctx.db.tx(roles.INTAKE, workspace_id) as tx:
            known = await sites.existing(tx, workspace_id, list({sale.site_id for sale in sales}))
            for (prefix, _), sale in zip(entries, sales, strict=True):
                if sale.site_id not in known:
                    got = f"there is no site {sale.site_id} in this workspace. {HOW_TO_MAKE_A_SITE}"
                    raise RequestRefused(422, "unknown_site", f"{prefix}site_id: {got}")
            changed = await write_sales(tx, workspace_id, sales)
            ids = await sale_ids(tx, workspace_id, keys)
    except RowFault as fault:
        raise RequestRefused(422, fault.code, f"No conversion was written: {fault.message}") from fault
    async with ctx.db.tx(roles.DELIVER, workspace_id) as tx:
        queued: dict[UUID, list[QueuedDelivery]] = {}
        for each in await deliveries_of(tx, list(ids.values())):
            queued.setdefault(each.sale_id, []).append(each)
    return [
        ConversionResult(
            sale,
            ids[sale.key],
            _RESULTS[changed.get(sale.key)],
            tuple(queued.get(ids[sale.key], ())),
        )
        for sale in sales
    ]


def checked(prefix: str, given: Any, now: datetime) -> Sale:
    """A validated conversion, or RequestRefused(422) with the error. `prefix`: "conversions[3]."."""
    if not isinstance(given, dict):
        where = prefix.removesuffix(".") or "body"
        raise RequestRefused(
            422, "invalid_conversion", f"{where}: expected a JSON object, got something else."
        )
    fields = _ConversionFields(prefix, given)
    fields.refuse_unknown()
    occurred_at = fields.moment("occurred_at")
    clicked_at = fields.moment("clicked_at")
    value, currency = fields.amount("value"), fields.currency("currency")
    if occurred_at is None:
        raise fields.wrong(
            "occurred_at", "a time with a time zone, such as 2026-01-31T14:30:00+01:00", "none"
        )
    if occurred_at > now + AHEAD:
        raise fields.wrong("occurred_at", "a time at most one day in the future", "a later time")
    if clicked_at is not None and clicked_at > occurred_at:
        raise fields.wrong("clicked_at", "a time before the conversion", "a later time")
    if value is not None and currency is None:
        raise fields.wrong("currency", "the currency of the value, such as EUR", "none")
    clicks = tuple((name, click) for name in CLICKS if (click := fields.click(name)))
    if not clicks:
        raise RequestRefused(
            422,
            "no_click_id",
            f"{prefix or 'body.'}{CLICKS[0]}: expected one of {', '.join(CLICKS)}, got none. "
            "At least one click id is required.",
        )
    site_id = fields.uuid("site_id")
    if site_id is None:
        raise fields.wrong("site_id", "the id of a site", f"none. {HOW_TO_MAKE_A_SITE}")
    return Sale(
        site_id=site_id,
        order_id=fields.order_id() or order_of_click(clicks[0][1], occurred_at),
        occurred_at=occurred_at,
        clicked_at=clicked_at,
        value=value,
        currency=currency,
        clicks=clicks,
        user_data=tuple(fields.digests().items()),
        conversation_id=fields.uuid("conversation_id"),
    )


def order_of_click(click_id: str, occurred_at: datetime) -> str:
    """The order id of a sale without one: derived from click id and time, so that the same sale is recognised.

    The pipeline conversions derives the same id.
    """
    identity = f"{click_id}|{occurred_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    return f"wb-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def _refuse_repeats(sales: Sequence[tuple[str, Sale]]) -> None:
    seen: dict[tuple[UUID, str], str] = {}
    for prefix, sale in sales:
        if sale.key in seen:
            message = f"{prefix}order_id: expected each order once, got the same order as {seen[sale.key]}."
            raise RequestRefused(422, "repeated_order", message)
        seen[sale.key] = prefix.removesuffix(".")


@dataclass(frozen=True)
class _ConversionFields:
    """The fields of one conversion. Empty text and null count as missing."""

    prefix: str
    given: Mapping[str, Any]

    def wrong(self, name: str, expected: str, got: str = "something else") -> RequestRefused:
        end = "" if got.endswith(".") else "."
        return RequestRefused(
            422, f"invalid_{name}", f"{self.prefix or 'body.'}{name}: expected {expected}, got {got}{end}"
        )

    def refuse_unknown(self) -> None:
        for name in self.given:
            if name not in FIELDS:
                hint = did_you_mean(name, FIELDS) or f"; there is {', '.join(FIELDS)}."
                where = self.prefix.removesuffix(".") or "body"
                raise RequestRefused(
                    422, "unknown_field", f"{where}: {quote_input(name)} is not a field{hint}"
                )

    def text(self, name: str, expected: str) -> str | None:
        value = self.given.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str) or not value.isprintable():
            raise self.wrong(name, expected)
        return value.strip() or None

    def moment(self, name: str) -> datetime | None:
        expected = "a time with a time zone, such as 2026-01-31T14:30:00+01:00"
        text = self.text(name, expected)
        if text is None:
            return None
        try:
            found = datetime.fromisoformat(text)
            found = found if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            raise self.wrong(name, expected) from None
        if found.tzinfo is None:
            raise self.wrong(name, expected, "a time without a time zone")
        if found < FIRST:
            raise self.wrong(name, "a time since 2000", "an earlier time")
        return found

    def amount(self, name: str) -> Decimal | None:
        value, expected = self.given.get(name), "a number of at least 0, such as 1234.56"
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self.wrong(name, expected)
        try:
            amount = Decimal(str(value).strip())
        except InvalidOperation:
            raise self.wrong(name, expected) from None
        if not amount.is_finite() or amount < 0:
            raise self.wrong(name, expected)
        if amount >= _TOO_MUCH:
            raise self.wrong(name, f"less than {_TOO_MUCH:,}", "more")
        return amount.quantize(_STEP)

    def currency(self, name: str) -> str | None:
        expected = "a currency such as EUR"
        text = (self.text(name, expected) or "").upper()
        if text and not _CURRENCY.fullmatch(text):
            raise self.wrong(name, expected)
        return text or None

    def click(self, name: str) -> str | None:
        expected = f"a click id as the platform writes it, of at most {LONGEST_CLICK} characters"
        text = self.text(name, expected)
        if text is not None and (len(text) > LONGEST_CLICK or not _CLICK.fullmatch(text)):
            raise self.wrong(name, expected)
        return text

    def order_id(self) -> str | None:
        expected = f"text of at most {LONGEST_ORDER} characters"
        value = self.given.get("order_id")
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        text = _ConversionFields(self.prefix, {"order_id": value}).text("order_id", expected)
        if text is not None and len(text) > LONGEST_ORDER:
            raise self.wrong("order_id", expected, "more")
        return text

    def uuid(self, name: str) -> UUID | None:
        expected = "a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b"
        text = self.text(name, expected)
        try:
            return UUID(text) if text else None
        except ValueError:
            raise self.wrong(name, expected) from None

    def digests(self) -> dict[str, str]:
        email = self.text("email", "an address such as name@example.com")
        phone = self.text("phone", "a number with country code, such as +49 170 1234567")
        try:
            return digests(email, phone)
        except Refused as refusal:
            message = f"{self.prefix or 'body.'}{refusal.message}"
            raise RequestRefused(422, refusal.code, message) from None
