"""Settings from the environment: `DELAYQ_REDIS_URL` and so on.

A variable that only resembles a setting is a mistake, and refused.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from delayq.base.errors import ConfigError
from delayq.base.networks import parse_networks
from delayq.base.secrets import as_utf8, revealed, with_user
from delayq.base.times import parse_duration
from delayq.domain.message import DELAY_LEVELS, MOST_ATTEMPTS, MOST_NUMBER, NAMESPACE, Limits
from delayq.domain.routes import Routes, load_routes

PREFIX: Final = "DELAYQ_"
#: Prefixes of variables that are not settings of a process: variables of docker-compose.yml, and of ./dev for jars.
OTHERS: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "APPENDFSYNC",
        "GRAFANA_PASSWORD",
        "HTTP_PORTS",
        "JARS",
        "RABBITMQ_PASSWORD",
        "REDIS_MAXMEMORY",
        "REDIS_PORT",
        "VERSION",
    )
)
_OF_TESTS: Final = f"{PREFIX}TEST_"
#: Variables that Kubernetes sets in every container of a namespace with a Service called delayq, or delayq-something.
_OF_KUBERNETES: Final = re.compile(
    r"DELAYQ(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)
#: The value of its DELAYQ_PORT, or of a DELAYQ_API_PORT that is not the setting.
_LINK: Final = re.compile(r"(tcp|udp|sctp)://.*")


def variable(name: str) -> str:
    """Return the variable of a setting."""
    return PREFIX + name.upper()


def _from_environment() -> dict[str, str]:
    """Return the settings of the environment. Raises ConfigError for a variable that only resembles a setting.

    A variable that Kubernetes sets for a Service is ignored.
    """
    _refuse_strangers(os.environ)
    found = {name: os.environ[variable(name)] for name in SETTINGS if variable(name) in os.environ}
    return {
        name: as_utf8(value)
        if name not in PATHS or value.lstrip().startswith(("[", "{"))
        else value  # routes may be JSON
        for name, value in found.items()
        if not _is_link(variable(name), value)
    }


def _refuse_strangers(environment: Mapping[str, str]) -> None:
    known = set(map(variable, SETTINGS))
    for name, value in environment.items():
        if name in known or not name.upper().startswith(PREFIX) or _is_of_others(name, value):
            continue
        raise _stranger(name)


def _stranger(name: str) -> ConfigError:
    import difflib  # only for a mistake

    (nearest,) = difflib.get_close_matches(name.upper(), map(variable, SETTINGS), n=1, cutoff=0)
    return ConfigError(
        f"{name} is not a setting of delayq; the nearest is {nearest}, and your own variables must not begin with "
        f"{PREFIX}"
    )


def _is_of_others(name: str, value: str) -> bool:
    return (
        name in OTHERS
        or name.startswith(_OF_TESTS)
        or _OF_KUBERNETES.fullmatch(name) is not None
        or _is_link(name, value)
    )


def _is_link(name: str, value: str) -> bool:
    return name.endswith("_PORT") and _LINK.fullmatch(value) is not None


#: Settings that name a file: its name need not be UTF-8.
PATHS: Final = ("routes", "api_keys", "zookeeper_ca", "zookeeper_certificate", "zookeeper_key")
#: Python's replacement for a byte of the environment that is not UTF-8.
SURROGATE: Final = re.compile("[\ud800-\udfff]")


#: The maximum number of bytes of a worker's name.
MOST_NAME: Final = 255
_DIGITS: Final = re.compile(r"[0-9]+")
_SERVER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_NAMESPACE: Final = re.compile(r"[a-z0-9_-]{1,32}")
_ZNODE: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+)+")


def _check_server(text: str) -> None:
    if not text:
        raise ValueError("a host is missing; check the commas")
    found = _SERVER.fullmatch(text)
    if found is None:
        raise ValueError(
            "each server must be host or host:port, with IPv6 addresses in brackets and commas between servers"
        )
    if not 0 < int(found["port"] or 2181) < 65_536:
        raise ValueError("a port must be from 1 to 65535")
    try:
        text.partition(":")[0].encode("idna")
    except UnicodeError:  # kazoo's thread would end with an error, and other servers would no longer be tried
        raise ValueError("each part of a host's name must have 1 to 63 characters") from None


def _check_znode(path: str) -> None:
    if path and not _ZNODE.fullmatch(path):
        raise ValueError(
            "a path in ZooKeeper must be /name or /name/name; a name has A-Z a-z 0-9 . _ -, and is not . or .."
        )


def _check_zookeeper(given: str) -> None:
    hosts, slash, chroot = given.partition("/")
    if "://" in given:
        raise ValueError("it has a scheme; use host:port,host:port")
    for one in hosts.split(",") if given else ():
        _check_server(one.strip())
    if chroot:
        _check_znode(slash + chroot)


def _check_namespace(given: str) -> None:
    if not _NAMESPACE.fullmatch(given):
        raise ValueError("a namespace has 1 to 32 characters of a-z 0-9 _ -; choose another name")


def _check_node(given: str) -> None:
    short = 0 < len(given.encode()) <= MOST_NAME
    if not short or not given.isprintable() or "/" in given or given in (".", ".."):
        raise ValueError(f"a name must have 1 to {MOST_NAME} printable bytes without a slash, and not be . or ..")


def _check_log_level(given: str) -> None:
    if given.upper() not in logging.getLevelNamesMapping():
        raise ValueError("it must be debug, info, warning or error")


class Setting(NamedTuple):
    """The parser of a setting, and its documentation."""

    default: Any
    description: str
    #: Returns the value of a setting, which is text if it comes from the environment. Raises ValueError with a
    #: sentence.
    read: Callable[[Any], Any]
    limits: str = ""
    is_duration: bool = False
    #: Errors and `repr` do not show the value.
    is_hidden: bool = False


def _described(setting: Setting) -> Any:
    return field(repr=not setting.is_hidden, metadata={"setting": setting})


def _text(
    default: str | Callable[[], str],
    description: str,
    *,
    hidden: bool = False,
    check: Callable[[str], object] = lambda given: None,
) -> Any:
    def read(given: Any) -> str:
        if not isinstance(given, str):
            raise ValueError("it must be text")
        check(given)
        return given

    return _described(Setting(default, description, read, is_hidden=hidden))


def _number(default: int | None, description: str, *, least: int, most: int = MOST_NUMBER) -> Any:
    limits = f"{least} or more" if most == MOST_NUMBER else f"{least} to {most}"

    def read(given: Any) -> int | None:
        if given is None and default is None:
            return None
        return _whole_number(given, least, most, f"it must be an integer, {limits}")

    return _described(Setting(default, description, read, limits))


def _duration(default: int, description: str) -> Any:
    return _described(Setting(default, description, _milliseconds, "a duration", is_duration=True))


def _durations(default: tuple[int, ...], description: str) -> Any:
    def read(given: Any) -> tuple[int, ...]:
        if isinstance(given, str):  # JSON, or the format of RocketMQ
            given = json.loads(given) if given.startswith("[") else given.split()
        if not given:
            raise ValueError("it needs at least one level, such as '1s 5s 10s'")
        return tuple(_milliseconds(one, least=0) for one in given)

    return _described(Setting(default, description, read))


def _choice(default: str, description: str, *choices: str) -> Any:
    return _described(Setting(default, description, lambda given: _one_of(choices, given)))


def _choices(description: str, *choices: str) -> Any:
    def read(given: Any) -> tuple[str, ...]:
        words = given.replace(",", " ").split() if isinstance(given, str) else given
        return tuple(_one_of(choices, word) for word in words)

    return _described(Setting((), description, read))


def _one_of(choices: Sequence[str], given: Any) -> str:
    if given not in choices:
        raise ValueError("it must be " + " or ".join(repr(one) for one in choices if one))
    return str(given)


def _milliseconds(given: Any, *, least: int = 1) -> int:
    """Return ms of a number or of '30s'."""
    if isinstance(given, str) and not _DIGITS.fullmatch(given):
        given = parse_duration(given)
    return _whole_number(given, least, MOST_NUMBER, f"it must be {least} to {MOST_NUMBER} ms")


def _whole_number(given: Any, least: int, most: int, refusal: str) -> int:
    """Return the number of an int or of text. Raises ValueError with the refusal."""
    text = str(given) if type(given) in (int, str) else ""
    if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(refusal)
    return int(text)


@dataclass(frozen=True, init=False)
class Settings:
    """All settings. Times are ms, or text such as '30s'; sizes are bytes.

    Settings that are not given come from the environment, or are the defaults. Raises ConfigError in one sentence.
    """

    redis_url: str = _text(
        "redis://127.0.0.1:6379/0",
        "the Redis that holds everything, see below; or env:NAME or file:PATH, where that stands",
        hidden=True,
    )
    redis_user: str = _text("", "the user of Redis, for a URL that names none")
    redis_password: str = _text("", "its password, or env:NAME or file:PATH, where it stands", hidden=True)
    redis_timeout: int = _duration(2_000, "how long to wait for a reply of Redis")
    min_replicas: int = _number(0, "replicas that must have a change before it is answered", least=0, most=100)
    fsync: str = _choice(
        "everysec", "always: a change is answered once it is on the primary's disk", "everysec", "always"
    )
    accept: tuple[str, ...] = _choices(
        "what is accepted of a Redis that cannot report it, 'unknown-persistence,unknown-eviction'",
        "unknown-persistence",
        "unknown-eviction",
    )
    queues: int | None = _number(
        None, "how many queues; unset: what this Redis has, 16 in a new one", least=1, most=16_384
    )
    namespace: str = _text(
        NAMESPACE,
        "what its keys in Redis begin with: installations with different ones can share a Redis",
        check=_check_namespace,
    )
    routes: str = _text("", "the route table: JSON, or the path of a JSON, YAML or TOML file", hidden=True)
    egress_allow: str = _text(
        "", "networks and names that are not public to which webhooks may go: '10.1.0.0/16 *.internal'"
    )

    body_limit: int = _number(1024 * 1024, "largest body of a message", least=1, most=16 * 1024 * 1024)
    batch_limit: int = _number(1_000, "most messages in one batch over HTTP", least=1, most=10_000)
    request_limit: int = _number(8 * 1024 * 1024, "largest HTTP request, cut off before it is read", least=1)
    horizon: int = _duration(10 * 365 * 86_400_000, "how far ahead a due time may be")
    delay_levels: tuple[int, ...] = _durations(DELAY_LEVELS, "delays of the levels, '1s 5s 10s …'")
    final_window: int = _duration(15 * 60_000, "how long ended ids are remembered")
    final_most: int = _number(200_000, "most ended ids remembered in a queue", least=1)

    audit_window: int = _duration(90 * 86_400_000, "how long the audit is kept")
    audit_most: int = _number(100_000, "most entries of the audit in a queue, about", least=1)

    max_attempts: int = _number(16, "how often to try before a message is buried", least=1, most=MOST_ATTEMPTS)
    retry_base: int = _duration(1_000, "back-off after the first failed attempt")
    retry_cap: int = _duration(600_000, "longest back-off")
    send_timeout: int = _duration(30_000, "how long a send may take")
    senders: int = _number(4, "concurrent sends to one target", least=1, most=64)
    window: int = _number(2_000, "most messages in flight in one queue", least=10, most=100_000)
    drain_timeout: int = _duration(25_000, "how long a stopping worker lets its sends finish")
    stuck_after: int = _duration(60_000, "a queue that hands out messages and has none confirmed for so long is stuck")
    node: str = _text(socket.gethostname, "this worker's name", check=_check_node)
    zookeeper: str = _text(
        "",
        "ZooKeeper servers, 'host:port,host:port', that spread the queues, and perhaps a chroot, '/path'; "
        "empty: one worker",
        check=_check_zookeeper,
    )
    zookeeper_root: str = _text("", "its path in ZooKeeper; unset: / and the namespace", check=_check_znode)
    zookeeper_user: str = _text("", "the user to log in as (SASL, DIGEST-MD5); unset: nobody")
    zookeeper_password: str = _text("", "its password, or env:NAME or file:PATH, where it stands", hidden=True)
    zookeeper_acl: str = _choice(
        "", "who may touch what workers make there: creator (if there is a user), or open to all", "", "creator", "open"
    )
    zookeeper_tls: str = _choice(
        "", "yes: TLS; any-host: and the certificate may be for any host; unset: no TLS", "", "yes", "any-host"
    )
    zookeeper_ca: str = _text("", "the file with the trusted authorities; unset: the system's own")
    zookeeper_certificate: str = _text("", "the file with the certificate that a worker shows")
    zookeeper_key: str = _text("", "the file with its key; unset: it is in the same file")
    zookeeper_key_password: str = _text(
        "", "the password of the key, or env:NAME or file:PATH, where it stands", hidden=True
    )
    session_timeout: int = _duration(
        4_000, "how long ZooKeeper waits for a silent worker before others take its queues"
    )

    api_host: str = _text(
        "127.0.0.1",
        "address of the HTTP API and of a worker's port; '0.0.0.0': every address of IPv4; "
        "'::' or empty: every address of IPv6 and IPv4",
    )
    api_port: int = _number(8080, "port of the HTTP API", least=0, most=65_535)
    api_url: str = _text(
        "", "the URL of the HTTP API that commands call in place of Redis, such as https://delayq.example.com"
    )
    api_key: str = _text("", "the key for that API, or env:NAME or file:PATH, where it stands", hidden=True)
    api_keys: str = _text("", "the file of the keys of the HTTP API, JSON, YAML or TOML; unset: it takes no keys")
    api_open: str = _choice(
        "",
        "yes-without-keys: listen on an address that is not loopback, and let everybody do everything",
        "",
        "yes-without-keys",
    )
    trusted_proxies: str = _text(
        "",
        "networks of proxies whose X-Forwarded-For names the caller, '10.0.0.0/8, 2001:db8::/32'; unset: none",
        check=parse_networks,
    )
    console: str = _choice(
        "yes",
        "whether the HTTP API has a console under /console/, and whether that changes anything",
        "yes",
        "readOnly",
        "no",
    )
    worker_port: int = _number(0, "port of the worker's /metrics, /livez and /readyz; 0 = none", least=0, most=65_535)
    traces: str = _choice(
        "", "otlp: send traces by OpenTelemetry, as the OTEL_… variables say; unset: make none", "", "otlp"
    )
    log_level: str = _text("info", "debug, info, warning or error", check=_check_log_level)

    def __init__(self, **given: Any) -> None:
        given = _with_whole_url(_from_environment() | given)
        for name in given.keys() - SETTINGS.keys():
            raise _stranger(variable(name))
        for name, setting in SETTINGS.items():
            if name in given:
                value = _read(name, setting, given[name])
            else:
                value = setting.default() if callable(setting.default) else setting.default
            object.__setattr__(self, name, value)  # a frozen dataclass does the same

    @property
    def zookeeper_hosts(self) -> str:
        """The ZooKeeper servers, without the chroot."""
        return ",".join(one.strip() for one in self.zookeeper.partition("/")[0].split(","))

    @property
    def zookeeper_path(self) -> str:
        """The path in ZooKeeper of all data of workers: the chroot and the root. Missing parts are created."""
        _, slash, chroot = self.zookeeper.partition("/")
        return f"{slash if chroot else ''}{chroot}{self.zookeeper_root or f'/{self.namespace}'}"

    @property
    def address(self) -> str:
        """The address of the worker's /metrics; empty if it has none. If it listens on every address, the host's name."""
        host = socket.gethostname() if self.api_host in ("", "0.0.0.0", "::") else self.api_host
        host = f"[{host}]" if ":" in host else host
        return f"{host}:{self.worker_port}" if self.worker_port else ""

    def limits(self) -> Limits:
        """The bounds of messages."""
        return Limits(
            body=self.body_limit,
            batch=self.batch_limit,
            horizon=self.horizon,
            delay_levels=self.delay_levels,
            namespace=self.namespace,
        )

    def route_table(self) -> Routes:
        """Return the route table. Raises ConfigError."""
        return load_routes(self.routes).within(self.namespace).allowing(self.egress_allow.replace(",", " ").split())

    def replace(self, **changed: Any) -> Settings:
        """Return these settings with changes, checked by the same rules. Raises ConfigError."""
        return Settings(**(vars(self) | changed))


#: Every setting by its name, in the order of the class.
SETTINGS: Final[Mapping[str, Setting]] = {one.name: one.metadata["setting"] for one in fields(Settings)}


def _with_whole_url(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings, with the given user and password in the URL of Redis."""
    for name, value in given.items():
        if name not in PATHS and isinstance(value, str) and SURROGATE.search(value):
            raise ConfigError(f"{variable(name)}: the value is not UTF-8")
    rest = dict(given)
    try:
        url = revealed(str(rest.get("redis_url", SETTINGS["redis_url"].default)), variable("redis_url"))
        password = revealed(str(rest.pop("redis_password", "")), variable("redis_password"))
        user = str(rest.pop("redis_user", ""))
        return rest | {"redis_url": with_user(url, user, password) if user or password else url}
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _read(name: str, setting: Setting, given: Any) -> Any:
    try:
        return setting.read(given)
    except (TypeError, ValueError) as error:
        shown = repr(given)
        is_shown = not setting.is_hidden and "@" not in shown  # a@ is a login
        raise ConfigError(f"{variable(name)}: {error}{f'; it is {shown}' if is_shown else ''}") from None


def load_settings(**given: Any) -> Settings:
    """Return the settings of the environment, with `given` over them. Raises ConfigError in one sentence."""
    if "redis_url" in given:  # another Redis than that of the environment has another user
        given = {"redis_user": "", "redis_password": "", **given}
    return Settings(**given)
