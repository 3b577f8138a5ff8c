"""The messages that a kind of target can never accept, judged by the message and the route alone.

A caller gets the error at once. Clients and the API know the routes. They need neither the packages of a target nor its
secrets for this check. The targets refuse the same messages. A message that was scheduled before, or with other routes,
becomes a dead letter.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from delayq.base.errors import InvalidMessage
from delayq.domain.message import Message
from delayq.domain.routes import Route
from delayq.targets.kafka import settings as kafka_settings
from delayq.targets.rabbitmq import passthrough as rabbitmq_carried
from delayq.targets.rocketmq import rules as rocketmq_rules
from delayq.targets.webhook import path as webhook_path


class KafkaCheck:
    """Refuse a topic whose name Kafka does not allow. Raises InvalidMessage."""

    reads_body = False

    def __init__(self, route: Route) -> None:
        self._template = kafka_settings.template_of(route.target)

    def __call__(self, message: Message) -> None:
        if why := kafka_settings.topic_refusal(self._template, message.topic):
            raise InvalidMessage("topic", why)


class RabbitMQCheck:
    """Refuse names that are too long, and properties that AMQP uses itself. Raises InvalidMessage."""

    reads_body = False

    def __init__(self, route: Route) -> None:
        self._exchange = _text(route, "exchange", "")
        self._routing_key = _text(route, "routingKey", "{topic}")
        self._prefix = _text(route, "propertyPrefix", "")

    def __call__(self, message: Message) -> None:
        try:
            rabbitmq_carried.way_of(self._exchange, self._routing_key, message.topic)
        except ValueError as error:
            raise InvalidMessage("topic", str(error)) from None
        try:
            rabbitmq_carried.carried(message.properties, self._prefix)
        except ValueError as error:
            raise InvalidMessage("properties", str(error)) from None


class RocketMQCheck:
    """Refuse an empty body, and a topic, a tag or properties that RocketMQ does not accept. Raises InvalidMessage."""

    reads_body = True

    def __init__(self, route: Route) -> None:
        self._topic = _text(route, "topic", "{topic}")

    def __call__(self, message: Message) -> None:
        body = message.body
        empty = isinstance(body, (str, bytes, bytearray, memoryview)) and len(body) == 0
        for field, why in (
            ("topic", rocketmq_rules.topic_refusal(rocketmq_rules.topic_of(self._topic, message.topic))),
            ("tags", rocketmq_rules.tag_refusal(message.tags)),
            ("properties", rocketmq_rules.properties_refusal(message.properties)),
            ("body", rocketmq_rules.NO_BODY if empty else ""),
        ):
            if why:
                raise InvalidMessage(field, why)


class WebhookCheck:
    """Refuse a topic that would leave the path in the route's URL. Raises InvalidMessage."""

    reads_body = False

    def __init__(self, route: Route) -> None:
        self._path = urlsplit(route.target).path

    def __call__(self, message: Message) -> None:
        if why := webhook_path.refusal(self._path, message.topic):
            raise InvalidMessage("topic", why)


def _text(route: Route, option: str, otherwise: str) -> str:
    """An option that is no secret. The target checks the other options."""
    value = route.options.get(option, otherwise)
    return value if isinstance(value, str) else otherwise
