"""A bridge from a queue of its own, as a process or in a thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.rabbitmq import RabbitMQ
from tests.support.amqp import Amqp, amqp
from tests.support.service import OneProcess
from tests.support.timeouts import REDIS_TIMEOUT

Bridges = Callable[..., OneProcess]


@pytest.fixture
def broker(rabbitmq: RabbitMQ) -> Iterator[Amqp]:
    """A connection to the broker."""
    with amqp(rabbitmq) as one:
        yield one


@pytest.fixture
def bridges(tmp_path: Path) -> Iterator[Bridges]:
    """Starts bridges, `delayq bridge rabbitmq …`, and ends them."""
    started: list[OneProcess] = []

    def start(server: RabbitMQ, queue: str, redis_url: str, *more: str, **settings: Any) -> OneProcess:
        command = [sys.executable, "-m", "delayq.cli", "bridge", "rabbitmq", "--queue", queue, *more]
        if "--url" not in more:
            command += ["--url", server.amqp_url]
        one = OneProcess(
            "bridge",
            command,
            {"redis_url": redis_url, "redis_timeout": str(REDIS_TIMEOUT), **settings},
            tmp_path / f"bridge-{len(started)}.log",
        )
        started.append(one)
        one.start()
        return one

    yield start
    for one in started:
        one.kill()
