"""RabbitMQ as a target: confirms, mandatory, one round trip a batch."""

from __future__ import annotations

from delayq.errors import MissingExtra

try:
    import pika  # noqa: F401  # asked for here, so that whoever lacks it is told what to install
except ModuleNotFoundError:
    raise MissingExtra("a RabbitMQ target", "rabbitmq") from None

from delayq.targets.rabbitmq.target import RabbitMQTarget

__all__ = ["RabbitMQTarget"]
