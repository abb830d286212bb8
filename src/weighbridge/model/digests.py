"""A person's e-mail address and telephone number → the digests that providers match by. Only the digests are kept.

email          SHA-256 of the address, trimmed and in lower case
email_google   the same, but gmail.com and googlemail.com lose dots and +suffix before the @
phone          SHA-256 of the number in E.164, +491701234567
phone_digits   the same without the +
"""

from __future__ import annotations

import re
from hashlib import sha256

from weighbridge.model.errors import Refused

_ADDRESS = re.compile(r"[^\s@,;<>\"]+@([^\s@.,;<>\"]+\.)+[^\s@.,;<>\"]{2,}")
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_SEPARATORS = str.maketrans("", "", " \t\u00a0-./()")
_GOOGLE = ("gmail.com", "googlemail.com")


def digests(email: str | None = None, phone: str | None = None) -> dict[str, str]:
    """Digests of the given values; blank ones are ignored. Raises Refused; its message does not repeat the value."""
    found: dict[str, str] = {}
    if email and email.strip():
        address = _address(email)
        found |= {"email": _hex(address), "email_google": _hex(_as_google(address))}
    if phone and phone.strip():
        number = _number(phone)
        found |= {"phone": _hex(number), "phone_digits": _hex(number.removeprefix("+"))}
    return found


def _address(text: str) -> str:
    address = text.strip().lower()
    if len(address) > 254 or not _ADDRESS.fullmatch(address):
        raise Refused(
            "not_an_email", "email: expected an address such as name@example.com, got something else."
        )
    return address


def _as_google(address: str) -> str:
    name, _, domain = address.partition("@")
    if domain not in _GOOGLE:
        return address
    return f"{name.partition('+')[0].replace('.', '')}@{domain}"


def _number(text: str) -> str:
    number = text.strip().translate(_SEPARATORS)
    if not _E164.fullmatch(number):
        raise Refused(
            "not_a_phone_number",
            "phone: expected a number with its country code, such as +49 170 1234567, got something else.",
        )
    return number


def _hex(text: str) -> str:
    return sha256(text.encode()).hexdigest()
