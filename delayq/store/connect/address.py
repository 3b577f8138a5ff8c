"""Where Redis is: every form of URL that is taken, parsed in this one place."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from delayq.errors import ConfigError
from delayq.urls import split_url

__all__ = ["CLUSTER", "SENTINEL", "SINGLE", "Address", "Node", "hosts", "parse", "without_secrets", "without_user"]

SINGLE: Final = "single"
SENTINEL: Final = "sentinel"
CLUSTER: Final = "cluster"

_SCHEMES: Final = {
    "redis": SINGLE, "rediss": SINGLE, "unix": SINGLE, "redis+sentinel": SENTINEL, "rediss+sentinel": SENTINEL,
    "redis+cluster": CLUSTER, "rediss+cluster": CLUSTER,
}  # fmt: skip
_PORTS: Final = {SENTINEL: 26_379, CLUSTER: 6_379}
_SENTINEL_USER: Final = ("sentinel_username", "sentinel_password")

#: Host and port of one server.
Node = tuple[str, int]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL. `nodes` are the sentinels, or some servers of the cluster; empty for a single server.

    `user` is 'user:password@' as it was written, for the servers; `sentinel_user` the same for the sentinels.
    """

    kind: str
    url: str
    nodes: tuple[Node, ...] = ()
    service: str = ""
    user: str = ""
    sentinel_user: str = ""
    tls: bool = False
    db: int = 0
    query: str = ""

    def url_of(self, node: Node, *, sentinel: bool = False) -> str:
        """The URL of one of its servers, or of a sentinel, as redis-py takes it."""
        host = f"[{node[0]}]" if ":" in node[0] else node[0]
        user, path = (self.sentinel_user, "") if sentinel else (self.user, f"/{self.db}")
        query = f"?{self.query}" if self.query else ""
        return f"{'rediss' if self.tls else 'redis'}://{user}{host}:{node[1]}{path}{query}"

    def same_as(self, other: Address) -> bool:
        """Whether both name the same data, as they are written. A Unix socket may name host and port of its server, too."""
        return not self._places().isdisjoint(other._places())

    def _places(self) -> set[tuple[object, ...]]:
        if self.kind != SINGLE:
            return {(self.kind, *sorted(self.nodes), self.service, self.db)}
        parts = urlsplit(self.url)
        (db,) = parse_qs(parts.query).get("db", [""])
        if parts.scheme != "unix":
            return {(parts.hostname, parts.port or 6379, db or parts.path.strip("/") or "0")}
        socket = (unquote(parts.path), db or "0")
        return {socket, (parts.hostname, parts.port, db or "0")} if parts.hostname and parts.port else {socket}


def parse(url: str) -> Address:
    """What the URL says; raises ConfigError. Options that redis-py does not know are told when a store is made."""
    try:
        parts = split_url(url)
        kind = _SCHEMES.get(parts.scheme)
        if kind is None or "://" not in url:
            *most, last = (f"{scheme}://" for scheme in _SCHEMES)
            raise ValueError(f"it begins with {', '.join(most)} or {last}")
        if kind == SINGLE:
            parts = urlsplit(url)
            (parts.hostname or "").encode("idna")
            _ = parts.port
            return Address(kind=kind, url=url)
        user, at, hosts = parts.netloc.rpartition("@")
        nodes = tuple(_node(one, _PORTS[kind]) for one in hosts.split(",") if one)
        if not nodes:
            raise ValueError("it names no host")
        service, db = _path(kind, parts.path)
        query, sentinel_user = _sentinel_user(parts.query) if kind == SENTINEL else (parts.query, "")
        return Address(
            kind=kind,
            url=url,
            nodes=nodes,
            service=service,
            user=user + at,
            sentinel_user=sentinel_user,
            tls=parts.scheme.startswith("rediss"),
            db=db,
            query=query,
        )
    except ValueError as error:
        raise ConfigError(f"the Redis URL is wrong: {error}") from None


def _node(text: str, port: int) -> Node:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path:
        raise ValueError(f"{text!r} is no host:port")
    parts.hostname.encode("idna")
    return parts.hostname, parts.port if parts.port is not None else port


def _sentinel_user(query: str) -> tuple[str, str]:
    """The options without those that are the sentinels' user, and that as 'user:password@'."""
    given: dict[str, str] = {}
    left = []
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if name in _SENTINEL_USER:
            given[name] = quote(unquote(value), safe="")
        else:
            left.append(option)
    if given and not given.get("sentinel_password"):
        raise ValueError("sentinel_username goes with sentinel_password, which must not be empty")
    user = f"{given.get('sentinel_username', '')}:{given['sentinel_password']}@" if given else ""
    return "&".join(left), user


def without_secrets(url: str) -> str:
    """The URL as it may be shown: no user, no password, no options."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2].partition("?")[0] if separator else ""


def without_user(url: str) -> str:
    """The URL for one who has no name and password with the servers (those for sentinels stay)."""
    parts = split_url(url)
    query = "&".join(one for one in parts.query.split("&") if one.partition("=")[0] not in ("username", "password"))
    without = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{without}?{query}" if query else without


def hosts(url: str) -> list[str]:
    """The hosts that it names; '' is this machine."""
    where = parse(url)
    return [host for host, _ in where.nodes] or [urlsplit(url).hostname or ""]


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
