"""Settings, from the environment: `DELAYQ_REDIS_URL` and so on.

A variable that only looks like a setting is a slip, and refused.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import socket
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from delayq.errors import ConfigError
from delayq.message import DELAY_LEVELS, Limits
from delayq.networks import parse_networks
from delayq.routes import Routes, load_routes
from delayq.secrets import as_utf8, revealed, with_user
from delayq.times import parse_duration

__all__ = ["OTHERS", "PREFIX", "Environment", "Settings", "load_settings", "variable"]

PREFIX: Final = "DELAYQ_"
#: Variables that begin so and are no settings of a process: of docker-compose.yml, and of where ./dev looks for jars.
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
#: What Kubernetes tells every container of a namespace with a Service called delayq, or delayq-something.
_OF_KUBERNETES: Final = re.compile(
    r"DELAYQ(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)
#: And the value of its DELAYQ_PORT, or of a DELAYQ_API_PORT that is not the setting.
_LINK: Final = re.compile(r"(tcp|udp|sctp)://.*")


def variable(name: str) -> str:
    """The variable that a setting comes from."""
    return PREFIX + name.upper()


class Environment(EnvSettingsSource):
    """The variables that are settings; raises ConfigError for one that only looks so."""

    def __call__(self) -> dict[str, Any]:
        """What the environment sets."""
        _refuse_strangers(os.environ, self.settings_cls.model_fields)
        return super().__call__()

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """What it sets for a field; nothing, if Kubernetes only tells where a Service is."""
        value, key, is_complex = super().get_field_value(field, field_name)
        if value is not None and (
            field_name not in PATHS or value.lstrip().startswith(("[", "{"))
        ):  # routes may be JSON
            value = as_utf8(value)
        link = value is not None and _is_link(variable(field_name), value)
        return None if link else value, key, is_complex


def _refuse_strangers(environment: Mapping[str, str], names: Collection[str]) -> None:
    known = [variable(name) for name in names]
    for name, value in environment.items():
        if name in known or not name.upper().startswith(PREFIX) or _is_of_others(name, value):
            continue
        (nearest,) = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0)
        raise ConfigError(
            f"{name} is no setting of delayq; the nearest is {nearest}, "
            f"and variables of your own must not begin with {PREFIX}"
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


def _milliseconds(value: Any) -> Any:
    """ms of a number or of '30s'."""
    if isinstance(value, str) and not value.isdigit():
        return parse_duration(value)
    return value


#: Up to 2^53, which is as far as the scripts in Redis count whole numbers.
Milliseconds = Annotated[int, BeforeValidator(_milliseconds), Field(gt=0, le=2**53)]
Level = Annotated[int, BeforeValidator(_milliseconds), Field(ge=0, le=2**53)]


#: Settings that name a file: its name need not be UTF-8.
PATHS: Final = ("routes", "api_keys", "zookeeper_ca", "zookeeper_certificate", "zookeeper_key")
#: What Python makes of a byte of the environment that is not UTF-8.
SURROGATE: Final = re.compile("[\ud800-\udfff]")


#: The most bytes of a worker's name.
MOST_NAME: Final = 255
_SERVER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_ZNODE: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+)+")


def _check_server(text: str) -> None:
    if not text:
        raise ValueError("a host is missing: is there a comma too many?")
    found = _SERVER.fullmatch(text)
    if found is None:
        raise ValueError("each server is host or host:port, an IPv6 address in brackets, a comma between two")
    if not 0 < int(found["port"] or 2181) < 65_536:
        raise ValueError("a port is from 1 to 65535")
    try:
        text.partition(":")[0].encode("idna")
    except UnicodeError:  # kazoo's thread would die of it, and with it the way to the other servers
        raise ValueError("each part of a host's name has 1 to 63 characters") from None


def _check_znode(path: str) -> None:
    if not _ZNODE.fullmatch(path):
        raise ValueError("a path in ZooKeeper is /name or /name/name; a name has A-Z a-z 0-9 . _ -, and is not . or ..")


class Settings(BaseSettings):
    """Everything that can be set. Times are ms, or text like '30s'; sizes are bytes.

    What is not given is what the environment says, or the default. Raises ConfigError in one sentence.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        repr=False,
        description="the Redis that holds everything, see below; or env:NAME or file:PATH, where that stands",
    )
    redis_user: str = Field(default="", description="the user of Redis, for a URL that names none")
    redis_password: str = Field(
        default="", repr=False, description="its password, or env:NAME or file:PATH, where it stands"
    )
    redis_timeout: Milliseconds = Field(default=2_000, description="how long to wait for a reply of Redis")
    min_replicas: int = Field(
        default=0, ge=0, le=100, description="replicas that must have a change before it is answered"
    )
    fsync: Literal["everysec", "always"] = Field(
        default="everysec", description="always: a change is answered once it is on the primary's disk"
    )
    accept: Annotated[tuple[Literal["unknown-persistence", "unknown-eviction"], ...], NoDecode] = Field(
        default=(),
        description="what is accepted of a Redis that cannot report it, 'unknown-persistence,unknown-eviction'",
    )
    queues: int | None = Field(
        default=None, ge=1, le=16_384, description="how many queues; unset: what this Redis has, 16 in a new one"
    )
    routes: str = Field(
        default="", repr=False, description="the route table: JSON, or the path of a JSON, YAML or TOML file"
    )
    egress_allow: str = Field(
        default="",
        description="networks and names that are not public to which webhooks may go: '10.1.0.0/16 *.internal'",
    )

    body_limit: int = Field(default=1024 * 1024, gt=0, le=16 * 1024 * 1024, description="largest body of a message")
    batch_limit: int = Field(default=1_000, gt=0, le=10_000, description="most messages in one batch over HTTP")
    request_limit: int = Field(
        default=8 * 1024 * 1024, gt=0, description="largest HTTP request, cut off before it is read"
    )
    horizon: Milliseconds = Field(default=10 * 365 * 86_400_000, description="how far ahead a due may lie")
    delay_levels: Annotated[tuple[Level, ...], NoDecode] = Field(
        default=DELAY_LEVELS, description="delays of the levels, '1s 5s 10s …'"
    )
    final_window: Milliseconds = Field(default=15 * 60_000, description="how long ended ids are remembered")
    final_most: int = Field(default=200_000, gt=0, description="most ended ids remembered in a queue")

    audit_window: Milliseconds = Field(default=90 * 86_400_000, description="how long the audit is kept")
    audit_most: int = Field(default=100_000, gt=0, le=2**53, description="most entries of the audit in a queue, about")

    max_attempts: int = Field(default=16, ge=1, le=1_000, description="how often to try before a message is buried")
    retry_base: Milliseconds = Field(default=1_000, description="back-off after the first failed attempt")
    retry_cap: Milliseconds = Field(default=600_000, description="longest back-off")
    send_timeout: Milliseconds = Field(default=30_000, description="how long a send may take")
    forwarders: int = Field(default=4, ge=1, le=64, description="concurrent sends to one target")
    window: int = Field(default=2_000, ge=10, le=100_000, description="most messages in flight in one queue")
    drain_timeout: Milliseconds = Field(default=25_000, description="how long a stopping worker lets its sends finish")
    stuck_after: Milliseconds = Field(
        default=60_000, description="a queue that hands out messages and has none confirmed for so long is stuck"
    )
    node: str = Field(default_factory=socket.gethostname, description="this worker's name")
    zookeeper: str = Field(
        default="",
        description="ZooKeeper servers, 'host:port,host:port', that spread the queues, and perhaps a chroot, '/path'; "
        "empty: one worker",
    )
    zookeeper_root: str = Field(default="/delayq", description="its path in ZooKeeper")
    zookeeper_user: str = Field(default="", description="the user to log in as (SASL, DIGEST-MD5); unset: nobody")
    zookeeper_password: str = Field(
        default="", repr=False, description="its password, or env:NAME or file:PATH, where it stands"
    )
    zookeeper_acl: Literal["", "creator", "open"] = Field(
        default="", description="who may touch what workers make there: creator (if there is a user), or open to all"
    )
    zookeeper_tls: Literal["", "yes", "any-host"] = Field(
        default="", description="yes: TLS; any-host: and the certificate may be for any host; unset: no TLS"
    )
    zookeeper_ca: str = Field(
        default="", description="the file with the authorities that are trusted; unset: those of the system"
    )
    zookeeper_certificate: str = Field(default="", description="the file with the certificate that a worker shows")
    zookeeper_key: str = Field(default="", description="the file with its key; unset: it is in the same file")
    zookeeper_key_password: str = Field(
        default="", repr=False, description="the password of the key, or env:NAME or file:PATH, where it stands"
    )
    session_timeout: Milliseconds = Field(
        default=4_000, description="how long ZooKeeper waits for a silent worker before others take its queues"
    )

    api_host: str = Field(
        default="127.0.0.1",
        description="address of the HTTP API and of a worker's port; '0.0.0.0': every address of IPv4; "
        "'::' or empty: every address of IPv6 and IPv4",
    )
    api_port: int = Field(default=8080, ge=0, le=65_535, description="port of the HTTP API")
    api_keys: str = Field(
        default="", description="the file of the keys of the HTTP API, JSON, YAML or TOML; unset: it takes no keys"
    )
    api_open: Literal["", "yes-without-keys"] = Field(
        default="",
        description="yes-without-keys: listen on an address that is not loopback, and let everybody do everything",
    )
    trusted_proxies: str = Field(
        default="",
        description="networks of proxies whose X-Forwarded-For names the caller, '10.0.0.0/8, 2001:db8::/32'; unset: none",
    )
    console: Literal["yes", "read-only", "no"] = Field(
        default="yes",
        description="whether the HTTP API has a console under /console/, and whether that changes anything",
    )
    worker_port: int = Field(
        default=0, ge=0, le=65_535, description="port of the worker's /metrics, /livez and /readyz; 0 = none"
    )
    traces: Literal["", "otlp"] = Field(
        default="", description="otlp: send traces by OpenTelemetry, as the OTEL_… variables say; unset: make none"
    )
    log_level: str = Field(default="info", description="debug, info, warning or error")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given counts more than the variables; nothing else is read."""
        return init_settings, Environment(settings_cls)

    @model_validator(mode="wrap")
    @classmethod
    def _told(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(given)
        except ValidationError as error:
            raise ConfigError(_sentence(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _whole_url(cls, given: Any) -> Any:
        """The URL of Redis with the user and the password that are given beside it."""
        given = dict(given)
        for name, value in given.items():
            if name not in PATHS and isinstance(value, str) and SURROGATE.search(value):
                raise ValueError(f"{variable(name)}: the value is not UTF-8")
        url = revealed(str(given.get("redis_url", cls.model_fields["redis_url"].default)), variable("redis_url"))
        password = revealed(str(given.pop("redis_password", "")), variable("redis_password"))
        user = str(given.pop("redis_user", ""))
        given["redis_url"] = with_user(url, user, password) if user or password else url
        return given

    @field_validator("node")
    @classmethod
    def _node_name(cls, given: str) -> str:
        if (
            not given
            or not given.isprintable()
            or "/" in given
            or given in (".", "..")
            or len(given.encode()) > MOST_NAME
        ):
            raise ValueError(f"a name has 1 to {MOST_NAME} bytes that can be printed, no slash, and is not . or ..")
        return given

    @field_validator("zookeeper")
    @classmethod
    def _zookeeper_servers(cls, given: str) -> str:
        hosts, slash, chroot = given.partition("/")
        if "://" in given:
            raise ValueError("it has a scheme; write host:port,host:port")
        for one in hosts.split(",") if given else ():
            _check_server(one.strip())
        if chroot:
            _check_znode(slash + chroot)
        return given

    @field_validator("zookeeper_root")
    @classmethod
    def _zookeeper_path(cls, given: str) -> str:
        _check_znode(given)
        return given

    @field_validator("log_level")
    @classmethod
    def _level_name(cls, given: str) -> str:
        if given.upper() not in logging.getLevelNamesMapping():
            raise ValueError("it is debug, info, warning or error")
        return given

    @field_validator("accept", mode="before")
    @classmethod
    def _accepted(cls, given: Any) -> Any:
        return tuple(given.replace(",", " ").split()) if isinstance(given, str) else given

    @field_validator("delay_levels", mode="before")
    @classmethod
    def _levels(cls, given: Any) -> Any:
        if isinstance(given, str):  # JSON, or as RocketMQ writes them
            given = json.loads(given) if given.startswith("[") else given.split()
        if not given:
            raise ValueError("give at least one level, such as '1s 5s 10s'")
        return given

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies(cls, given: str) -> str:
        parse_networks(given)
        return given

    @property
    def zookeeper_hosts(self) -> str:
        """The ZooKeeper servers, without the chroot."""
        return ",".join(one.strip() for one in self.zookeeper.partition("/")[0].split(","))

    @property
    def zookeeper_path(self) -> str:
        """The path in ZooKeeper of all that workers keep there: the chroot and the root. Whatever is missing of it is created."""
        _, slash, chroot = self.zookeeper.partition("/")
        return f"{slash if chroot else ''}{chroot}{self.zookeeper_root}"

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

    def replace(self, **changed: Any) -> Settings:
        """These settings with some changed, by the same rules; raises ConfigError."""
        return Settings(**(dict(self) | changed))


def load_settings(**given: Any) -> Settings:
    """The settings of the environment, with `given` over them; raises ConfigError in one sentence."""
    if "redis_url" in given:  # another Redis than that of the environment, so another user
        given = {"redis_user": "", "redis_password": "", **given}
    return Settings(**given)


def _sentence(error: ValidationError) -> str:
    """What is wrong first, and with which setting. What was given is shown unless it may be a secret."""
    first = error.errors()[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    field = Settings.model_fields.get(name)
    given = repr(first["input"])
    shown = f"; it is {given}" if field is not None and field.repr and "@" not in given else ""  # a@ is a login
    return f"{variable(name)}: {message}{shown}"
