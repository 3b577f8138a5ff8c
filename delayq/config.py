"""Settings, from the environment: `DELAYQ_REDIS_URL` and so on."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

import msgspec

from delayq.environment import settings_in, variable
from delayq.errors import ConfigError
from delayq.message import DELAY_LEVELS, Limits
from delayq.routes import Routes, load_routes
from delayq.secrets import revealed, with_user
from delayq.times import parse_duration

__all__ = ["RULES", "Rule", "Settings", "load_settings"]

_WHOLE: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting is, what it may be, and how what was given becomes its value (or a ValueError)."""

    description: str
    limits: str
    read: Callable[[Any], Any]
    duration: bool = False


def _setting(default: Any, rule: Rule, *, secret: bool = False) -> Any:
    if callable(default):
        return field(default_factory=default, repr=not secret, metadata={"rule": rule})
    return field(default=default, repr=not secret, metadata={"rule": rule})


def _text(default: Any, description: str, *, pattern: str = "", secret: bool = False) -> Any:
    def read(given: Any) -> str:
        if not isinstance(given, str):
            raise ValueError("it has to be text")
        if pattern and re.fullmatch(pattern, given, re.ASCII) is None:
            raise ValueError(f"it has to be like {default}")
        return given

    return _setting(default, Rule(description, "", read), secret=secret)


def _choice(default: str, choices: tuple[str, ...], description: str) -> Any:
    def read(given: Any) -> str:
        if given not in choices:
            raise ValueError(f"it has to be {' or '.join(one or 'empty' for one in choices)}")
        return str(given)

    return _setting(default, Rule(description, "", read))


def _number(default: int | None, description: str, *, least: int, most: int | None = None) -> Any:
    limits = f"{least} or more" if most is None else f"{least} to {most}"

    def read(given: Any) -> int | None:
        if given is None and default is None:
            return None
        number = _whole(given)
        if number is None or number < least or (most is not None and number > most):
            raise ValueError(f"it has to be a whole number, {limits}")
        return number

    return _setting(default, Rule(description, limits, read))


def _duration(default: int, description: str) -> Any:
    def read(given: Any) -> int:
        ms = _milliseconds(given)
        if ms <= 0:
            raise ValueError("it has to be more than 0")
        return ms

    return _setting(default, Rule(description, "a duration", read, duration=True))


def _levels(default: tuple[int, ...], description: str) -> Any:
    def read(given: Any) -> tuple[int, ...]:
        if isinstance(given, str):
            try:  # JSON, or as RocketMQ writes them
                given = msgspec.json.decode(given) if given.startswith("[") else given.split()
            except msgspec.DecodeError as error:
                raise ValueError(str(error)) from None
        levels = tuple(map(_milliseconds, given))
        if not levels or min(levels) < 0:
            raise ValueError("give at least one level, such as '1s 5s 10s'")
        return levels

    return _setting(default, Rule(description, "", read))


def _whole(given: Any) -> int | None:
    """The whole number that was given, as such or as text."""
    if isinstance(given, str):
        return int(given) if _WHOLE.fullmatch(given) else None
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _milliseconds(given: Any) -> int:
    """ms of a number or of '30s'."""
    number = _whole(given)
    return parse_duration(str(given)) if number is None else number


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set. Times are ms, or text like '30s'; sizes are bytes.

    What is not given has its default: the environment is read by `load_settings`. Raises ConfigError in one sentence.
    """

    redis_url: str = _text(
        "redis://127.0.0.1:6379/0",
        "the Redis that holds everything, see below; or env:NAME or file:PATH, where that stands",
        secret=True,
    )
    redis_user: str = _text("", "the user of Redis, for a URL that names none")
    redis_password: str = _text("", "its password, or env:NAME or file:PATH, where it stands", secret=True)
    redis_timeout: int = _duration(2_000, "how long to wait for a reply of Redis")
    min_replicas: int = _number(0, "replicas that must have a change before it is answered", least=0, most=100)
    fsync: Literal["everysec", "always"] = _choice(
        "everysec", ("everysec", "always"), "always: a change is answered once it is on the primary's disk"
    )
    queues: int | None = _number(
        None, "how many queues; unset: what this Redis has, 16 in a new one", least=1, most=16_384
    )
    routes: str = _text("", "the route table: JSON, or the path of a JSON, YAML or TOML file", secret=True)
    egress_allow: str = _text(
        "", "networks and names that are not public to which webhooks may go: '10.1.0.0/16 *.internal'"
    )

    body_limit: int = _number(1024 * 1024, "largest body of a message", least=1, most=16 * 1024 * 1024)
    batch_limit: int = _number(1_000, "most messages in one batch over HTTP", least=1, most=10_000)
    request_limit: int = _number(8 * 1024 * 1024, "largest HTTP request, cut off before it is read", least=1)
    horizon: int = _duration(10 * 365 * 86_400_000, "how far ahead a due may lie")
    delay_levels: tuple[int, ...] = _levels(DELAY_LEVELS, "delays of the levels, '1s 5s 10s …'")
    final_window: int = _duration(15 * 60_000, "how long ended ids are remembered")
    final_most: int = _number(200_000, "most ended ids remembered in a queue", least=1)

    max_attempts: int = _number(16, "how often to try before a message is buried", least=1, most=1_000)
    retry_base: int = _duration(1_000, "back-off after the first failed attempt")
    retry_cap: int = _duration(600_000, "longest back-off")
    send_timeout: int = _duration(30_000, "how long a send may take")
    forwarders: int = _number(4, "concurrent sends to one target", least=1, most=64)
    window: int = _number(2_000, "most messages in flight in one queue", least=10, most=100_000)
    drain_timeout: int = _duration(25_000, "how long a stopping worker lets its sends finish")
    stuck_after: int = _duration(60_000, "a queue that hands out messages and has none confirmed for so long is stuck")
    node: str = _text(socket.gethostname, "this worker's name")
    zookeeper: str = _text("", "ZooKeeper servers, 'host:port,host:port', that spread the queues; empty: one worker")
    zookeeper_root: str = _text("/delayq", "its path in ZooKeeper", pattern=r"^(/[A-Za-z0-9._-]+)+$")
    zookeeper_user: str = _text("", "the user to log in as (SASL, DIGEST-MD5); unset: nobody")
    zookeeper_password: str = _text("", "its password, or env:NAME or file:PATH, where it stands", secret=True)
    zookeeper_acl: Literal["", "creator", "open"] = _choice(
        "",
        ("", "creator", "open"),
        "who may touch what workers make there: creator (if there is a user), or open to all",
    )
    zookeeper_tls: Literal["", "yes", "any-host"] = _choice(
        "", ("", "yes", "any-host"), "yes: TLS; any-host: and the certificate may be for any host; unset: no TLS"
    )
    zookeeper_ca: str = _text("", "the file with the authorities that are trusted; unset: those of the system")
    zookeeper_certificate: str = _text("", "the file with the certificate that a worker shows")
    zookeeper_key: str = _text("", "the file with its key; unset: it is in the same file")
    zookeeper_key_password: str = _text(
        "", "the password of the key, or env:NAME or file:PATH, where it stands", secret=True
    )
    session_timeout: int = _duration(
        4_000, "how long ZooKeeper waits for a silent worker before others take its queues"
    )

    api_host: str = _text("127.0.0.1", "address of the HTTP API")
    api_port: int = _number(8080, "port of the HTTP API", least=0, most=65_535)
    api_keys: str = _text("", "the file of the keys of the HTTP API, JSON, YAML or TOML; unset: it takes no keys")
    api_open: Literal["", "yes-without-keys"] = _choice(
        "",
        ("", "yes-without-keys"),
        "yes-without-keys: listen on an address that is not loopback, and let everybody do everything",
    )
    worker_port: int = _number(0, "port of the worker's /metrics, /livez and /readyz; 0 = none", least=0, most=65_535)
    traces: Literal["", "otlp"] = _choice(
        "", ("", "otlp"), "otlp: send traces by OpenTelemetry, as the OTEL_… variables say; unset: make none"
    )
    log_level: str = _text("info", "debug, info, warning or error")

    def __post_init__(self) -> None:
        try:
            url = revealed(self.redis_url, variable("redis_url"))
            password = revealed(self.redis_password, variable("redis_password"))
            if self.redis_user or password:
                url = with_user(url, self.redis_user, password)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        # From here on they stand in the URL.
        values = {"redis_url": url, "redis_user": "", "redis_password": ""}
        for one in fields(self):
            given = values.get(one.name, getattr(self, one.name))
            try:
                value = one.metadata["rule"].read(given)
            except ValueError as error:
                shown = f"; it is {given!r}" if one.repr else ""
                raise ConfigError(f"{variable(one.name)}: {error}{shown}") from None
            object.__setattr__(self, one.name, value)

    @property
    def address(self) -> str:
        """Where the worker's /metrics are; empty if nowhere. If at every address, by the name of the host."""
        host = socket.gethostname() if self.api_host in ("", "0.0.0.0", "::") else self.api_host
        host = f"[{host}]" if ":" in host else host
        return f"{host}:{self.worker_port}" if self.worker_port else ""

    def limits(self) -> Limits:
        """What a message may be."""
        return Limits(
            body=self.body_limit, batch=self.batch_limit, horizon=self.horizon, delay_levels=self.delay_levels
        )

    def route_table(self) -> Routes:
        """The route table; raises ConfigError."""
        return load_routes(self.routes).allowing(self.egress_allow.replace(",", " ").split())


#: Of each setting, by its name.
RULES: Final[Mapping[str, Rule]] = {one.name: one.metadata["rule"] for one in fields(Settings)}


def load_settings(**given: Any) -> Settings:
    """The settings of the environment, with `given` over them; raises ConfigError in one sentence."""
    found = settings_in(os.environ, RULES)
    if "redis_url" in given:  # another Redis than that of the environment, so another user
        found = {name: value for name, value in found.items() if name not in ("redis_user", "redis_password")}
    return Settings(**(found | given))
