"""Where Redis is: every form of URL that is taken, parsed in this one place."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from delayq.errors import ConfigError

__all__ = ["CLUSTER", "SENTINEL", "SINGLE", "Address", "Node", "parse"]

SINGLE: Final = "single"
SENTINEL: Final = "sentinel"
CLUSTER: Final = "cluster"

_SCHEMES: Final = {
    "redis": SINGLE, "rediss": SINGLE, "unix": SINGLE, "redis+sentinel": SENTINEL, "rediss+sentinel": SENTINEL,
    "redis+cluster": CLUSTER, "rediss+cluster": CLUSTER,
}  # fmt: skip
_PORTS: Final = {SENTINEL: 26_379, CLUSTER: 6_379}

#: Host and port of one server.
Node = tuple[str, int]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL. `nodes` are the sentinels, or some servers of the cluster; empty for a single server.

    `user` is 'user:password@' as it was written, for the servers; the sentinels are asked without it.
    """

    kind: str
    url: str
    nodes: tuple[Node, ...] = ()
    service: str = ""
    user: str = ""
    tls: bool = False
    db: int = 0
    query: str = ""

    def url_of(self, node: Node, *, anonymous: bool = False) -> str:
        """The URL of one of its servers, as redis-py takes it; `anonymous` is a sentinel's."""
        host = f"[{node[0]}]" if ":" in node[0] else node[0]
        user, path = ("", "") if anonymous else (self.user, f"/{self.db}")
        query = f"?{self.query}" if self.query else ""
        return f"{'rediss' if self.tls else 'redis'}://{user}{host}:{node[1]}{path}{query}"

    def same_as(self, other: Address) -> bool:
        """Whether both name the same data, as they are written."""
        return self._place() == other._place()

    def _place(self) -> tuple[object, ...]:
        if self.kind != SINGLE:
            return (self.kind, sorted(self.nodes), self.service, self.db)
        parts = urlsplit(self.url)
        return (self.kind, parts.hostname, parts.port or 6379, parts.path.strip("/") or "0")


def parse(url: str) -> Address:
    """What the URL says; raises ConfigError. Options that redis-py does not know are told when a store is made."""
    try:
        parts = urlsplit(url)
        kind = _SCHEMES.get(parts.scheme)
        if kind is None or "://" not in url:
            *most, last = (f"{scheme}://" for scheme in _SCHEMES)
            raise ValueError(f"it begins with {', '.join(most)} or {last}")
        if kind == SINGLE:
            (parts.hostname or "").encode("idna")
            _ = parts.port
            return Address(kind=kind, url=url)
        user, at, hosts = parts.netloc.rpartition("@")
        nodes = tuple(_node(one, _PORTS[kind]) for one in hosts.split(",") if one)
        if not nodes:
            raise ValueError("it names no host")
        service, db = _path(kind, parts.path)
        return Address(
            kind=kind, url=url, nodes=nodes, service=service, user=user + at, tls=parts.scheme.startswith("rediss"),
            db=db, query=parts.query,
        )  # fmt: skip
    except ValueError as error:
        raise ConfigError(f"the Redis URL is wrong: {error}") from None


def _node(text: str, port: int) -> Node:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path:
        raise ValueError(f"{text!r} is no host:port")
    parts.hostname.encode("idna")
    return parts.hostname, parts.port if parts.port is not None else port


def _path(kind: str, path: str) -> tuple[str, int]:
    """The service and the database that the path names."""
    words = path.strip("/").split("/") if path.strip("/") else []
    if kind == CLUSTER:
        if words not in ([], ["0"]):
            raise ValueError("a Redis Cluster has no databases: leave the path out")
        return "", 0
    if not 1 <= len(words) <= 2:
        raise ValueError("behind the sentinels stands the name of the service, and perhaps a database: /mymaster/0")
    if len(words) == 2 and not words[1].isdecimal():
        raise ValueError(f"the database is a number, not {words[1]!r}")
    return words[0], int(words[1]) if len(words) == 2 else 0
