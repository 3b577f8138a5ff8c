"""RabbitMQ over TLS."""

from __future__ import annotations

import pytest

from delayq.embedded.processes import LOCALHOST, free_port
from testbed.rabbitmq import RabbitMQ
from tests.support.amqp import Amqp
from tests.support.certificates import Authority
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS
from tests.targets.conftest import Rabbits

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rabbitmq")]


@pytest.fixture
def secure_port(rabbitmq: RabbitMQ, authority: Authority) -> int:
    """A port where the broker listens for TLS from now on."""
    shown, port = authority.issue("rabbitmq", LOCALHOST), free_port()
    files = f'{{certfile, "{shown.certificate}"}}, {{keyfile, "{shown.key}"}}'
    listens = f'rabbit_networking:start_ssl_listener({{"{LOCALHOST}", {port}, inet}}, [{files}], 2)'
    rabbitmq.control("eval", f"{{ok, _}} = application:ensure_all_started(ssl), ok = {listens}.")
    return port


def test_a_broker_with_a_trusted_certificate_gets_messages_and_another_does_not(
    secure_port: int, authority: Authority, broker: Amqp, rabbits: Rabbits
) -> None:
    queue = broker.queue()
    url = f"rabbitmqs://guest:guest@{LOCALHOST}:{secure_port}/%2F"
    trusted = {"ca": str(authority.file)}
    assert outcomes(rabbits(url, **trusted).send([delivery("a", topic=queue)], SEND_SECONDS)) == ["ok"]
    assert broker.ids(queue, 1) == ["a"]
    for other, options in ((url, {}), (url.replace(LOCALHOST, "localhost"), trusted)):
        (result,) = rabbits(other, **options).send([delivery("b", topic=queue)], SEND_SECONDS)
        assert result.outcome == "unavailable" and "CERTIFICATE_VERIFY_FAILED" in result.reason
    # The name of the first is not in its certificate.
    both = rabbits(url.replace("guest@", f"guest@localhost:{secure_port},"), **trusted)
    assert outcomes(both.send([delivery("c", topic=queue)], SEND_SECONDS)) == ["ok"]
