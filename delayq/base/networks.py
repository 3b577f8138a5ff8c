"""Networks and addresses in settings."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: IPv4 within IPv6 (::ffff:10.0.0.1) counts as IPv4, because both are the same machine.
_MAPPED = IPv6Network("::ffff:0:0/96")


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of '10.0.0.0/8, 2001:db8::/32 192.168.1.7'. Raises ValueError with a sentence."""
    return tuple(_network(one) for one in text.replace(",", " ").split())


def _network(text: str) -> Network:
    try:
        found = ip_network(text)
    except ValueError:
        try:
            meant = f"use {ip_network(text, strict=False)}"
        except ValueError:
            meant = "use a network such as 10.0.0.0/8 or 2001:db8::/32, or an address"
        raise ValueError(f"{text!r} is not a network; {meant}") from None
    if isinstance(found, IPv6Network) and found.subnet_of(_MAPPED):
        mapped = found.network_address.ipv4_mapped
        assert mapped is not None
        return IPv4Network((mapped, found.prefixlen - 96))
    return found


def address_of(text: str) -> Address | None:
    """Return the address without a zone, or None if the text is not an address."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
