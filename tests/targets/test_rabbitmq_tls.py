"""RabbitMQ over TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.embedded.processes import LOCALHOST, free_port
from testbed.rabbitmq import RabbitMQ
from tests.support.amqp import amqp, real_rabbitmq
from tests.support.deliveries import delivery, outcomes
from tests.support.receiver import certificate
from tests.support.timeouts import SEND_SECONDS
from tests.targets.conftest import Rabbits

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rabbitmq")]


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return certificate(tmp_path, LOCALHOST)


@pytest.fixture
def secure(pem: Path) -> Iterator[tuple[RabbitMQ, str]]:
    """A broker with a certificate for 127.0.0.1, and the URL that it is reached by."""
    port = free_port()
    settings = {
        "listeners.ssl.1": f"{LOCALHOST}:{port}",
        "ssl_options.cacertfile": str(pem),
        "ssl_options.certfile": str(pem),
        "ssl_options.keyfile": str(pem),
        "ssl_options.verify": "verify_none",
    }
    with real_rabbitmq(settings=settings) as server:
        yield server, f"rabbitmqs://guest:guest@{LOCALHOST}:{port}/%2F"


def test_a_broker_with_a_trusted_certificate_gets_messages_and_another_does_not(
    secure: tuple[RabbitMQ, str], pem: Path, rabbits: Rabbits
) -> None:
    server, url = secure
    with amqp(server) as broker:
        queue = broker.queue()
        assert outcomes(rabbits(url, ca=str(pem)).send([delivery("a", topic=queue)], SEND_SECONDS)) == ["ok"]
        assert broker.ids(queue, 1) == ["a"]
    (result,) = rabbits(url).send([delivery("b", topic=queue)], SEND_SECONDS)
    assert result.outcome == "unavailable" and "CERTIFICATE_VERIFY_FAILED" in result.reason
    (result,) = rabbits(url.replace(LOCALHOST, "localhost"), ca=str(pem)).send(
        [delivery("c", topic=queue)], SEND_SECONDS
    )
    assert result.outcome == "unavailable" and "CERTIFICATE_VERIFY_FAILED" in result.reason
