"""The addresses of the brokers, and the connection parameters."""

from __future__ import annotations

import ssl
from typing import Final
from urllib.parse import unquote, urlsplit

import pika

from delayq.base.urls import split_url

PORT: Final = 5672
TLS_PORT: Final = 5671


def parameters_of(
    url: str,
    *,
    user: str = "",
    password: str = "",
    tls: ssl.SSLContext | None = None,
    connect_timeout: int = 5_000,
    heartbeat: int = 10_000,
    name: str = "delayq",
    schemes: tuple[str, str] = ("rabbitmq", "rabbitmqs"),
) -> list[pika.ConnectionParameters]:
    """Return the parameters for each host of `scheme://[user:password@]host[:port][,host…][/vhost]`. Times are ms.

    The second scheme means TLS. Raises ValueError.
    """
    parts = split_url(url)
    given, _, hosts = parts.netloc.rpartition("@")
    if not hosts or parts.query or parts.fragment or parts.scheme not in schemes:
        raise ValueError(f"the URL must be {schemes[0]}[s]://[user:password@]host:port[,host:port…]/virtual-host")
    given_user, _, given_password = given.partition(":")
    credentials = pika.PlainCredentials(
        user or unquote(given_user) or "guest", password or unquote(given_password) or "guest"
    )
    secure = parts.scheme == schemes[1]
    found = []
    for host in hosts.split(","):
        where = urlsplit(f"//{host}")
        if not where.hostname:
            raise ValueError("a host is missing in the URL")
        if host.split() != [host]:  # no name server has such a name, and the next host would hide that
            raise ValueError(f"the host {host!r} has a blank; use host:port,host:port")
        if where.port == 0:
            raise ValueError("a port must be from 1 to 65535")
        name_or_address = unquote(where.hostname)  # an IPv6 address has its zone after %25
        context = (tls or ssl.create_default_context()) if secure else None
        found.append(
            pika.ConnectionParameters(
                host=name_or_address,
                port=where.port or (TLS_PORT if secure else PORT),
                virtual_host=unquote(parts.path[1:]) or "/",
                credentials=credentials,
                heartbeat=max(1, heartbeat // 1000),
                socket_timeout=connect_timeout / 1000,
                stack_timeout=connect_timeout / 1000,
                connection_attempts=1,
                ssl_options=pika.SSLOptions(context, name_or_address) if context is not None else None,
                client_properties={"connection_name": name},
            )
        )
    return found
