"""The address of Redis: every accepted form of URL, parsed in this one place.

Each part of a URL is used, or refused by its name. redis-py never gets a URL: it would ignore unknown parts, and accept
options that have no effect in delayq.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, unquote_plus, urlsplit

import msgspec

from delayq.base.errors import ConfigError
from delayq.base.urls import split_url

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
        """Return the URL of one of its servers, or of a sentinel, for redis-py."""
        host = f"[{node[0]}]" if ":" in node[0] else node[0]
        user, path = (self.sentinel_user, "") if sentinel else (self.user, f"/{self.db}")
        query = f"?{self.query}" if self.query else ""
        return f"{'rediss' if self.tls else 'redis'}://{user}{host}:{node[1]}{path}{query}"

    @property
    def scheme(self) -> str:
        """Return the scheme of the URL."""
        return self.url.partition(":")[0]

    def same_as(self, other: Address) -> bool:
        """Return whether both name the same data, as written. A Unix socket may name its server's host and port too."""
        return not self._places().isdisjoint(other._places())

    def _places(self) -> set[tuple[object, ...]]:
        if self.kind != SINGLE:
            return {(self.kind, *sorted(self.nodes), self.service, self.db)}
        given = arguments(self.url)
        host, port, db = given.get("host"), given.get("port"), given["db"]
        if "path" not in given:
            return {(host, port or 6379, db)}
        socket = (given["path"], db)
        return {socket, (host, port, db)} if host is not None else {socket}


# -- what stands behind the question mark
# ---------------------------------------------------------------------------------


def _text(value: str) -> str:
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[!-~]+", value):
        raise ValueError("must be visible ASCII without blanks")
    return value


def _flag(value: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if value.lower() not in known:
        raise ValueError("must be true or false")
    return known[value.lower()]


def _seconds(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", value) or not float(value):
        raise ValueError("must be a number of seconds")
    return float(value)


def _trust(value: str) -> str:
    if value not in ("none", "optional", "required"):
        raise ValueError("must be none, optional or required")
    return value


def _database(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError("must be the number of a database")
    return int(value)


#: The options of redis-py that have an effect here, and their parsers.
_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "client_name": _name,
    "socket_connect_timeout": _seconds,
    "socket_keepalive": _flag,
    "ssl_ca_certs": _text,
    "ssl_ca_data": _text,
    "ssl_ca_path": _text,
    "ssl_cert_reqs": _trust,
    "ssl_certfile": _text,
    "ssl_check_hostname": _flag,
    "ssl_ciphers": _text,
    "ssl_keyfile": _text,
    "ssl_password": _text,
}
_FILES: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
#: Options that only the URL of one server may have: elsewhere they are before the hosts, and in the path.
_OF_ONE: Final[dict[str, Callable[[str], Any]]] = {"db": _database, "username": _text, "password": _text}
_OF_SENTINELS: Final[dict[str, Callable[[str], Any]]] = dict.fromkeys(_SENTINEL_USER, _text)
_INSTEAD: Final = {"socket_timeout": "DELAYQ_REDIS_TIMEOUT", "timeout": "DELAYQ_REDIS_TIMEOUT"}


def _options(parts: SplitResult, known: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """Return the options by name. Raises ValueError, which never shows a value, because it may be a secret."""
    found: dict[str, Any] = {}
    for option in parts.query.split("&") if parts.query else ():
        name, _, value = option.partition("=")
        if name not in known:
            shown = f"the option {name}" if re.fullmatch(r"[A-Za-z_-]{1,40}", name) else "an option"
            hint = f"use {_INSTEAD[name]}" if name in _INSTEAD else f"known options are {', '.join(sorted(known))}"
            raise ValueError(f"it has {shown}, which has no effect here; {hint}")
        if name in found:
            raise ValueError(f"it has the option {name} twice; give it once")
        if not value:
            raise ValueError(f"its option {name} is empty")
        if name.startswith("ssl_") and not parts.scheme.startswith("rediss"):
            raise ValueError(f"its option {name} needs TLS; begin the URL with rediss")
        if name.startswith("socket_") and parts.scheme == "unix":
            raise ValueError(f"its option {name} has no effect for a Unix socket")
        try:
            found[name] = known[name](unquote_plus(value, errors="strict"))
        except UnicodeDecodeError:
            raise ValueError(f"its option {name} is not UTF-8") from None
        except ValueError as error:
            raise ValueError(f"its option {name} {error}") from None
    return found


def check_files(address: Address) -> None:
    """Raise ConfigError if a file that the URL names cannot be read."""
    given = _options(_split(address.url), _OPTIONS | _OF_ONE | _OF_SENTINELS)
    for name in _FILES:
        if (path := given.get(name)) is None:
            continue
        try:
            if name != "ssl_ca_path":
                Path(path).read_bytes()
            elif not Path(path).is_dir():
                raise NotADirectoryError(20, "it is not a directory")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not a path"
            raise ConfigError(f"the Redis URL is wrong: {name}: cannot read {path}: {reason}") from None


# -- the URL
# ---------------------------------------------------------------------------------------------------------------


def parse(url: str) -> Address:
    """Parse the URL. Raises ConfigError."""
    try:
        parts = _split(url)
        kind = _SCHEMES[parts.scheme]
        if kind == SINGLE:
            _single(parts)
            return Address(kind=kind, url=url)
        user, at, hosts = parts.netloc.rpartition("@")
        if not hosts:
            raise ValueError("it names no host")
        nodes = tuple(_node(one, _PORTS[kind]) for one in hosts.split(","))
        service, db = _path(kind, parts.path)
        more = _OF_SENTINELS if kind == SENTINEL else {}
        _options(parts, _OPTIONS | more)
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


def arguments(url: str) -> dict[str, Any]:
    """The arguments of a connection to one server: host and port or path, db, user, options. Raises ValueError."""
    return _single(_split(url))


def transport(url: str) -> str:
    """Return how one server is reached: unix, tls or tcp."""
    return "unix" if url.startswith("unix:") else "tls" if url.startswith("rediss:") else "tcp"


def _split(url: str) -> SplitResult:
    parts = split_url(url)
    if parts.scheme not in _SCHEMES or "://" not in url:
        *most, last = (f"{scheme}://" for scheme in _SCHEMES)
        raise ValueError(f"it must begin with {', '.join(most)} or {last}")
    if "#" in url:
        raise ValueError("it has a #; write %23 in a password")
    if re.search(r"[\x00-\x1f\x7f]" if parts.scheme == "unix" else r"[\x00-\x20\x7f]", url):
        raise ValueError("it has a blank or a control character; encode it")
    return parts


def _single(parts: SplitResult) -> dict[str, Any]:
    user, _, place = parts.netloc.rpartition("@")
    found: dict[str, Any] = {}
    name, _, password = user.partition(":")
    found |= {key: unquote(value) for key, value in (("username", name), ("password", password)) if value}
    if "," in place:
        raise ValueError("it names several hosts; use redis+sentinel:// or redis+cluster://")
    if place:
        found["host"], port = _host_and_port(place, None)
        found |= {"port": port} if port is not None else {}
    if parts.scheme == "unix":
        if place and "port" not in found:
            raise ValueError("a Unix socket has three slashes: unix:///path/of/the.sock")
        if not parts.path.strip("/"):
            raise ValueError("it names no socket: unix:///path/of/the.sock")
        found["path"] = unquote(parts.path)
    elif parts.path not in ("", "/"):
        if not re.fullmatch(r"/[0-9]{1,9}/?", parts.path):
            raise ValueError("after the host, write the number of a database, as /0, or nothing")
        found["db"] = int(parts.path.strip("/"))
    if parts.scheme != "unix":
        found.setdefault("host", "localhost")
    for option, value in _options(parts, _OPTIONS | _OF_ONE).items():
        if option in found:
            raise ValueError(f"its option {option} is also before the question mark")
        found[option] = value
    return {"db": 0} | found


def _host_and_port(text: str, port: int | None) -> tuple[str, int | None]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path or "@" in text:
        raise ValueError("it has a host that is not host:port")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError("each part of a host's name must have 1 to 63 characters") from None
    _, bracket, behind = text.rpartition("]")
    if behind.count(":") > 1 or (bracket and behind[:1] not in ("", ":")):
        raise ValueError("it has a host that is not host:port; write an IPv6 address in brackets, as [::1]:6379")
    given = behind.rpartition(":")
    if given[1]:
        if not re.fullmatch(r"[0-9]{1,5}", given[2]) or not 0 < int(given[2]) < 65_536:
            raise ValueError("a port must be a number from 1 to 65535")
        port = int(given[2])
    return unquote(parts.hostname), port


def _node(text: str, port: int) -> Node:
    host, given = _host_and_port(text, port)
    return host, given if given is not None else port


def _sentinel_user(query: str) -> tuple[str, str]:
    """Return the options without the user of the sentinels, and that user as 'user:password@'."""
    given: dict[str, str] = {}
    left = []
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if name in _SENTINEL_USER:
            given[name] = quote(unquote(value), safe="")
        else:
            left.append(option)
    if given and not given.get("sentinel_password"):
        raise ValueError("sentinel_username needs sentinel_password, which must not be empty")
    user = f"{given.get('sentinel_username', '')}:{given['sentinel_password']}@" if given else ""
    return "&".join(left), user


def without_secrets(url: str) -> str:
    """Return the URL without user, password and options."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2].partition("?")[0] if separator else ""


def without_user(url: str) -> str:
    """Return the URL for a caller without credentials for the servers; those for sentinels stay."""
    parts = split_url(url)
    query = "&".join(one for one in parts.query.split("&") if one.partition("=")[0] not in ("username", "password"))
    without = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{without}?{query}" if query else without


def hosts(url: str) -> list[str]:
    """Return the hosts that it names; '' is this machine."""
    where = parse(url)
    return [host for host, _ in where.nodes] or [arguments(url).get("host", "")]


def _path(kind: str, path: str) -> tuple[str, int]:
    """Return the service and the database that the path names."""
    words = path.strip("/").split("/") if path.strip("/") else []
    if kind == CLUSTER:
        if words not in ([], ["0"]):
            raise ValueError("a Redis Cluster has no databases; remove the path")
        return "", 0
    if not 1 <= len(words) <= 2:
        raise ValueError("after the sentinels, write the name of the service, and perhaps a database: /mymaster/0")
    if len(words) == 2 and not re.fullmatch(r"[0-9]{1,9}", words[1]):
        raise ValueError(f"the database must be a number, not {words[1]!r}")
    return words[0], int(words[1]) if len(words) == 2 else 0
