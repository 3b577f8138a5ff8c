"""Whether this machine has IPv6, which many containers do not."""

from __future__ import annotations

import socket


def has_ipv6() -> bool:
    """Whether a socket can be bound to the loopback address of IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
