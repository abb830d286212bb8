"""Email addresses and phone numbers are hashed as the providers require."""

from __future__ import annotations

from hashlib import sha256

import pytest

from weighbridge.model.digests import digests
from weighbridge.model.errors import Refused


def of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_an_address_is_trimmed_and_lowered() -> None:
    expected = of("jane.doe+shop@example.com")
    assert digests("  Jane.Doe+Shop@Example.COM ") == {"email": expected, "email_google": expected}


@pytest.mark.parametrize("domain", ["gmail.com", "googlemail.com"])
def test_for_google_its_own_addresses_lose_dots_and_suffix(domain: str) -> None:
    found = digests(f"Jane.D.oe+shop@{domain}")
    assert found["email"] == of(f"jane.d.oe+shop@{domain}")
    assert found["email_google"] == of(f"janedoe@{domain}")


@pytest.mark.parametrize("number", ["+491701234567", " +49 170 / 123-45.67 ", "+49 (170) 1234567"])
def test_a_phone_number_is_hashed_with_and_without_its_plus(number: str) -> None:
    assert digests(phone=number) == {"phone": of("+491701234567"), "phone_digits": of("491701234567")}


def test_a_missing_value_has_no_digest() -> None:
    assert digests() == digests("", None) == digests("  ", " ") == {}
    assert set(digests("a@b.example", "+4917012345")) == {"email", "email_google", "phone", "phone_digits"}


@pytest.mark.parametrize(
    "address", ["canary", "canary@", "@canary.example", "a canary@b.example", "canary@localhost", "canary@b..example",
                "canary@@b.example", f"{'canary' * 50}@b.example"]
)  # fmt: skip
def test_an_invalid_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(Refused) as raised:
        digests(address)
    assert raised.value.code == "not_an_email"
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    "number",
    ["0170 1234567", "00491701234567", "+0491701234567", "+33 17", "+4917012345678901", "+49170x1234567", "٠١٢٣٤٥٦٧"]
)  # fmt: skip
def test_an_invalid_number_is_refused_and_not_repeated(number: str) -> None:
    with pytest.raises(Refused) as raised:
        digests(phone=number)
    assert raised.value.code == "not_a_phone_number"
    assert number not in str(raised.value)
