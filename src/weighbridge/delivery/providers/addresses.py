"""Allowed webhook addresses: a site's address must not lead into the operator's network.

The host name is resolved before a request is sent. The address of the connection is checked again before the first byte
is sent, because the name may have changed. Two limits: with a proxy (HTTPS_PROXY) only the proxy's address is checked;
and the error shows whether a port responds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

from weighbridge.model.delivery import Category, Outcome, ProviderTransientError

# IPv6 ranges that gateways translate to IPv4 addresses, and the old site-local range.
_INWARD = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "fec0::/10")))
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")  # ::ffff:0:a.b.c.d


class Private(Exception):
    """The connection leads to an address that is not public."""


REFUSED = Outcome.failed(
    "PRIVATE_ADDRESS",
    "url: it leads to an address that is not public. The operator can allow its host.",
    Category.AUTH,
)


def checked(url: str) -> str | Outcome:
    """The host of an address, or an error. The address may contain a secret: messages do not quote it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return _wrong("it cannot be read")
    if parts.scheme not in ("http", "https"):
        return _wrong("it has another scheme")
    if not host:
        return _wrong("it names no host")
    if "@" in parts.netloc:
        return _wrong("it contains a user name or password; requests are authenticated by their signature")
    return host


def _wrong(why: str) -> Outcome:
    return Outcome.failed(
        "CREDENTIALS", f"url: expected https://host/path or http://host/path, but {why}.", Category.AUTH
    )


async def is_public(host: str) -> bool:
    """Whether all addresses of a host name are public. Raises ProviderTransientError if it has none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ProviderTransientError("The receiver's host name cannot be resolved.", "UNREACHABLE") from None
    return all(_is_public(str(address[0])) for *_, address in found)


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if any(parsed in network for network in _INWARD):
            return False
        if inner := parsed.ipv4_mapped or parsed.sixtofour or _translated(parsed):
            return _is_public(str(inner))
    return parsed.is_global and not parsed.is_multicast


def _translated(parsed: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    return ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in _TRANSLATED else None


async def _look(event: str, info: dict[str, Any]) -> None:
    if event == "connection.connect_tcp.complete":
        stream = info["return_value"]
        peer = stream.get_extra_info("server_addr")
        if not _is_public(str(peer[0])):
            await stream.aclose()
            raise Private


ONLY_PUBLIC = {"trace": _look}  # httpx's extensions of a request
