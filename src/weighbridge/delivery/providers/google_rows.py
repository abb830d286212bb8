"""Shared by both Google adapters: whether a row can be sent, and its parts as JSON. Requests are built as text: that
takes half the time of a dictionary for each of 2,000 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as text
from math import isfinite

from weighbridge.model.delivery import Conversion, Outcome, ProviderTransientError

CLICKS = ("gclid", "gbraid", "wbraid")  # also Google's names of the fields


def sendable(conversions: Sequence[Conversion], results: list[Outcome | ProviderTransientError]) -> list[int]:
    """The positions of the rows that can be sent. The others get their outcome in `results`."""
    rows = []
    for row, each in enumerate(conversions):
        if each.click_type not in CLICKS:
            message = f"Google accepts gclid, gbraid and wbraid, not {each.click_type}."
            results[row] = Outcome.failed("CLICK_TYPE", message)
        elif each.value is not None and not isfinite(each.value):
            results[row] = Outcome.failed("VALUE", "The value is not a number that Google accepts.")
        else:
            rows.append(row)
    return rows


def value(conversion: Conversion, currency: str) -> str:
    """The JSON members for value and currency, if they are set."""
    worth = "" if conversion.value is None else f',"conversionValue":{conversion.value!s}'
    return f'{worth},"{currency}":{text(conversion.currency)}' if conversion.currency else worth


def people(conversion: Conversion, email: str, phone: str) -> str:
    """The digests by which Google matches a person, as elements of a list."""
    known = conversion.user_data
    found = [(email, known.get("email_google")), (phone, known.get("phone"))]
    return ",".join(f'{{"{name}":{text(digest)}}}' for name, digest in found if digest)


__all__ = ["CLICKS", "people", "sendable", "text", "value"]
