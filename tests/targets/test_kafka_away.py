"""A worker whose Kafka is away says so once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delayq.embedded.processes import LOCALHOST, free_port
from tests.support.servers import real_server
from tests.support.service import OneProcess, Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


def lines_of(worker: OneProcess) -> list[dict[str, Any]]:
    """What it has logged; each line is one of its own making."""
    return [json.loads(line) for line in worker.said().splitlines()]


def test_brokers_that_are_away_cost_one_line_and_none_without_messages(tmp_path: Path) -> None:
    away = f"kafka://{LOCALHOST}:{free_port()}"
    routes = [
        {"name": "used", "match": "u.*", "target": away, "sendTimeout": 5_000},
        {"name": "idle", "match": "i.*", "target": away},
    ]
    # The brokers are to be its one trouble: on a busy machine it may stand still for a while, which by default it warns
    # of, and librdkafka may take long to tell that nobody listens there.
    settings: Any = {"session_timeout": "60s", "redis_timeout": "30s", "retry_base": "50ms", "retry_cap": "50ms"}
    with (
        real_server("valkey") as server,
        Service(tmp_path, server.url, routes=json.dumps(routes), **settings) as service,
    ):
        (worker,) = service.workers
        for number in range(6):
            assert service.schedule("u.t", id=f"m{number}", delayTime=0).status_code == 201
        eventually(lambda: [line for line in lines_of(worker) if line["event"] == "circuit_open"], "the circuit opens")
        assert service.schedule("u.t", id="next", delayTime=0).status_code == 201
        eventually(lambda: service.http.get("/v1/messages/next").json()["state"] == "parked", "it is parked")
    warned = [line for line in lines_of(worker) if line["level"] != "info"]
    assert [(line["event"], line["route"]) for line in warned] == [("circuit_open", "used")]
    assert "Connection refused" in warned[0]["reason"]
