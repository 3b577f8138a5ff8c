"""The settings of a Kafka route: the brokers and the topic in its URL, librdkafka's settings in its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from delayq.base.errors import ConfigError
from delayq.base.secrets import revealed
from delayq.domain.routes import Route

#: Settings of librdkafka that a route may give. They exclude the settings that the promise depends on.
OPTIONS: Final = frozenset({
    "batch.num.messages", "batch.size", "broker.address.family", "client.dns.lookup", "client.id", "client.rack",
    "compression.level", "compression.type", "linger.ms", "message.max.bytes", "metadata.max.age.ms", "partitioner",
    "queue.buffering.max.kbytes", "queue.buffering.max.messages", "sasl.kerberos.keytab", "sasl.kerberos.principal",
    "sasl.kerberos.service.name", "sasl.mechanism", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions", "sasl.oauthbearer.method", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url", "sasl.password", "sasl.username", "security.protocol",
    "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location",
    "ssl.endpoint.identification.algorithm", "ssl.key.location", "ssl.key.password", "ssl.key.pem",
    "ssl.keystore.location", "ssl.keystore.password",
})  # fmt: skip
#: The defaults. Java's partitioner: a key lies in the same partition whoever writes it. How large a
#: message may be, the broker decides. A broker that is back, or a topic that was made, is found within some seconds.
DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "delayq",
    "linger.ms": 1,
    "message.max.bytes": 16 * 1024 * 1024,
    "partitioner": "murmur2_random",
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 10_000,
}

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def template_of(url: str) -> str:
    """The name of the topic in a route's URL; `{topic}` stands for the message's topic."""
    return url.removeprefix("kafka://").partition("/")[2] or "{topic}"


def name_of(template: str, topic: str) -> str:
    """Return the name of the Kafka topic for messages of `topic`."""
    return template.replace("{topic}", topic)


def topic_refusal(template: str, topic: str) -> str:
    """Return why Kafka cannot have the topic for messages of `topic`; '' if it can."""
    name = name_of(template, topic)
    if _TOPIC.fullmatch(name) is not None:
        return ""
    return (
        f"{name!r} is not a Kafka topic: use 1 to 249 characters of A-Z a-z 0-9 . _ -, not '.' or '..', or name "
        "another topic in the route's URL"
    )


class KafkaSettings:
    """Return the settings of a route. Raises ConfigError."""

    def __init__(self, url: str, route: Route) -> None:
        servers = url.removeprefix("kafka://").partition("/")[0]
        self.template = template_of(url)
        brokers = [_SERVER.fullmatch(one) for one in servers.split(",")]
        if not url.startswith("kafka://") or not all(brokers):
            raise ConfigError(
                f"route {route.name}: a Kafka URL must be kafka://host:port,host:port/topic, without a login"
            )
        if not all(one is None or 0 < int(one["port"] or 9092) < 65_536 for one in brokers):
            raise ConfigError(f"route {route.name}: the port of a Kafka broker must be from 1 to 65535")
        if topic_refusal(self.template, "x"):
            raise ConfigError(f"route {route.name}: a Kafka topic must have 1 to 249 characters of A-Z a-z 0-9 . _ -")
        if unknown := sorted(route.options.keys() - OPTIONS):
            known = ", ".join(sorted(OPTIONS))
            raise ConfigError(f"route {route.name}: unknown Kafka option {unknown[0]!r}; known are {known}")
        self._hidden: list[str] = []
        try:
            options = {name: self._value(name, value) for name, value in route.options.items()}
        except ValueError as error:
            raise ConfigError(f"route {route.name}: {error}") from None
        self._settings = {**DEFAULTS, **options, "bootstrap.servers": servers, "enable.idempotence": True}

    def _value(self, name: str, value: object) -> Any:
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"{name} must be text, a number, true or false")
        if type(value) is int and name.endswith(("username", "password", "secret")):
            value = str(value)
        if not isinstance(value, str):
            return value
        text = revealed(value, name)
        if text != value or name.endswith(("password", "secret", "key.pem")):
            self._hidden.append(text)
        return text

    def timed(self, ms: int) -> dict[str, Any]:
        """Return the settings of a producer that gives up a message after this many ms."""
        # A new topic is not known everywhere at once: only after this time it counts as unknown.
        return {**self._settings, "message.timeout.ms": ms, "topic.metadata.propagation.max.ms": min(5_000, ms // 2)}

    def shown(self, text: str) -> str:
        """Return the text without the route's secrets."""
        for secret in filter(None, self._hidden):
            text = text.replace(secret, "***")
        return text
