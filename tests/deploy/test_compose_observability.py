"""Prometheus as docker-compose.yml runs it, on the stack: what it finds, and what the dashboard and the rules ask it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from delayq.embedded.processes import LOCALHOST
from testbed.errors import ServerMissing
from tests.deploy.compose import ROOT
from tests.deploy.stack import LISTENS, Stack
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

OBSERVABILITY = ROOT / "observability"
RULES = [
    one
    for group in msgspec.yaml.decode((OBSERVABILITY / "alerts.yaml").read_text())["groups"]
    for one in group["rules"]
]
PANELS = [one for one in json.loads((OBSERVABILITY / "dashboard.json").read_text())["panels"] if one["type"] != "row"]


@pytest.fixture(scope="module")
def prometheus(stack: Stack) -> Iterator[httpx2.Client]:
    """A client of it; it has scraped everything once."""
    if shutil.which("wget") is None:
        pytest.skip("no wget, which the health check of Prometheus is: install it (apt install wget)")
    try:
        server = stack.up("prometheus")
    except ServerMissing as error:
        pytest.skip(str(error))
    with httpx2.Client(
        base_url=f"http://{LOCALHOST}:{server.ports[9090]}/api/v1", timeout=20, trust_env=False
    ) as client:
        eventually(lambda: {one["health"] for one in targets(client)} == {"up"}, "all that is scraped is up")
        yield client
    stack.down("prometheus")


def answer(client: httpx2.Client, path: str, **query: str) -> Any:
    found = client.get(path, params=query).json()
    assert found["status"] == "success", found
    return found["data"]


def targets(client: httpx2.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(client, "/targets")["activeTargets"]
    return found


def values(client: httpx2.Client, expression: str) -> dict[str, float]:
    """What an expression is, by the process that it comes from."""
    found = answer(client, "/query", query=expression)["result"]
    return {one["metric"].get("instance", ""): float(one["value"][1]) for one in found}


def test_every_container_of_the_api_and_the_worker_is_scraped(stack: Stack, prometheus: httpx2.Client) -> None:
    jobs = {"delayq-api": "api", "delayq-workers": "worker"}
    here = {
        (job, f"{LOCALHOST}:{one.ports[port]}")
        for job, name in jobs.items()
        for port in LISTENS[name]
        for one in stack.containers[name]
    }
    assert len(here) == 5
    assert {(one["labels"]["job"], one["labels"]["instance"]) for one in targets(prometheus)} == here
    for metric, job in {"delayq_api_waiting": "delayq-api", "delayq_queues": "delayq-workers"}.items():
        assert values(prometheus, metric).keys() == {address for of, address in here if of == job}
    eventually(lambda: values(prometheus, "sum(delayq_queues)") == {"": 16.0}, "all queues are counted")


def test_the_rules_of_the_file_are_evaluated(prometheus: httpx2.Client) -> None:
    def rules() -> list[dict[str, Any]]:
        return [one for group in answer(prometheus, "/rules")["groups"] for one in group["rules"]]

    assert [one["name"] for one in rules()] == [one["alert"] for one in RULES]
    eventually(lambda: {one["health"] for one in rules()} == {"ok"}, "each rule was evaluated")
    absent = {"DelayqNoWorker", "DelayqNoApi", "DelayqQueueWithoutOwner"}
    eventually(lambda: absent <= {one["name"] for one in rules() if one["state"] == "inactive"}, "nothing is missed")


def test_every_query_of_the_dashboard_is_answered(prometheus: httpx2.Client) -> None:
    shown = set()
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "20s").replace("$namespace", ".*")
            if answer(prometheus, "/query", query=expression)["result"]:
                shown.add(panel["title"])
    assert len(shown) > len(PANELS) / 2, "most panels show something"


def test_grafana_shows_the_dashboard_and_asks_prometheus(stack: Stack, prometheus: httpx2.Client) -> None:
    try:
        grafana = stack.up("grafana")
    except ServerMissing as error:
        pytest.skip(str(error))
    url = f"http://{LOCALHOST}:{grafana.ports[3000]}/api"
    admin = ("admin", stack.services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"])
    try:
        with httpx2.Client(base_url=url, timeout=20, trust_env=False) as anybody:
            assert anybody.get("/dashboards/home").json()["dashboard"]["title"] == "delayq"
            assert anybody.get("/dashboards/uid/delayq").json()["meta"]["provisioned"] is True
            assert anybody.post("/folders", json={"title": "mine"}).status_code in (401, 403)
            source = anybody.get("/datasources/uid/prometheus", auth=admin).json()
            assert f"{source['url']}/api/v1/" == str(prometheus.base_url)
    finally:
        stack.down("grafana")
