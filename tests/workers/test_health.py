"""Where a worker's own port is."""

from __future__ import annotations

import socket
from unittest.mock import Mock

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from delayq.config import Settings
from delayq.embedded.processes import free_port
from tests.support.timeouts import HTTP_TIMEOUT
from workers.node.complaints import complaints
from workers.node.node import Node
from workers.telemetry import health


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_worker_answers_at_the_address_that_it_tells(host: str) -> None:
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6: switch it on (sysctl net.ipv6.conf.lo.disable_ipv6=0)")
    settings = Settings(api_host=host, worker_port=free_port())
    health.serve(host, settings.worker_port, Mock(), CollectorRegistry())
    answer = httpx2.get(f"http://{settings.address}/livez", trust_env=False, timeout=HTTP_TIMEOUT)
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_a_queue_that_cannot_be_pulled_is_named_unless_redis_is_away_altogether() -> None:
    job = Mock(stuck=False, pulls_fail="WRONGTYPE of some key")
    node = Mock(spec=Node, ready=True, jobs={3: job}, watch=None, skew=Mock(far=False), redis_clock=Mock(answers=True))
    assert complaints(node) == ["queue 3: nothing can be pulled: WRONGTYPE of some key"]
    node.redis_clock.answers = False
    assert complaints(node) == ["Redis does not answer"]
