"""API and worker, started as the chart's containers are: by their commands, with their variables, on loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from delayq.api_keys import make_key, write_keys
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from tests.deploy.rendering import Objects, of_kind, render
from tests.support.service import OneProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

#: A release with keys, routes, a reader and a topic for its test; what KEDA asks for is in `keda`.
GIVEN = (
    "--set", "redis.existingSecret=redis,api.keys.existingSecret=keys,reader.existingSecret=reader",
    "--set", "metrics.serviceMonitor.enabled=true,test.topic=orders.test,test.existingSecret=test",
    "--set-json", 'routes.table=[{"name": "orders", "match": "orders.*", "target": "redis+stream:"}]',
)  # fmt: skip


class Installed(NamedTuple):
    """What runs: the objects that it was made of, where the ports of the containers are, and the secrets."""

    objects: Objects
    urls: dict[str, str]
    secrets: dict[str, str]
    processes: list[OneProcess]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The release, with an embedded Valkey for its Redis."""
    folder = tmp_path_factory.mktemp("release")
    objects = render(*GIVEN)
    reader, reads = make_key("reader", {"*": ["read"]})
    tester, tests = make_key("test", {"orders.test": ["schedule", "cancel", "read"]})
    for name, data in of_kind(objects, "ConfigMap", "-routes")["data"].items():
        (folder / "routes").mkdir()
        (folder / "routes" / name).write_text(data)
    (folder / "keys").mkdir()
    write_keys(folder / "keys" / "keys.yaml", [reads, tests])
    with EmbeddedServer(data_dir=folder / "valkey") as redis:
        secrets = {"redis": redis.url, "reader": reader, "test": tester}
        release = Installed(objects, {}, secrets, [])
        for end in ("-workers", "-api"):
            start(release, of_kind(objects, "Deployment", end)["spec"]["template"]["spec"]["containers"][0], folder)
        try:
            yield release
        finally:
            for process in release.processes:
                process.stop()


def start(release: Installed, container: dict[str, Any], folder: Path) -> None:
    """Start a container's command here: another port of its own, and files and secrets as they would be mounted."""
    port = free_port()
    process = OneProcess(container["name"], [sys.executable, *container["command"][1:]], {}, folder / container["name"])
    process.environment = variables(container, release.secrets, {"status.podIP": LOCALHOST, "metadata.name": "pod"})
    for name, value in process.environment.items():
        process.environment[name] = value.replace("/etc/delayq", str(folder))
    assert container["command"][0] == "python"
    listens = "DELAYQ_API_PORT" if container["name"] == "api" else "DELAYQ_WORKER_PORT"
    assert process.environment[listens] == str(container["ports"][0]["containerPort"])
    process.environment |= {listens: str(port), "DELAYQ_API_HOST": LOCALHOST}
    release.urls[container["name"]] = f"http://{LOCALHOST}:{port}"
    release.processes.append(process)
    process.start()


def variables(container: dict[str, Any], secrets: dict[str, str], fields: dict[str, str]) -> dict[str, str]:
    """The container's variables, as Kubernetes would fill them in."""
    found = {}
    for one in container.get("env", ()):
        if "value" in one:
            found[one["name"]] = one["value"]
        elif "fieldRef" in one["valueFrom"]:
            found[one["name"]] = fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            found[one["name"]] = secrets[one["valueFrom"]["secretKeyRef"]["name"]]
    return found


def ask(url: str, key: str = "") -> httpx2.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx2.get(url, headers=headers, timeout=10, trust_env=False)


def status(url: str) -> int:
    try:
        return ask(url).status_code
    except httpx2.TransportError:
        return 0


def answers(url: str) -> None:
    """Wait until it is 200."""
    eventually(lambda: status(url) == 200, url)


@pytest.mark.parametrize("end", ["-api", "-workers"])
def test_the_probes_are_answered(installed: Installed, end: str) -> None:
    (container,) = of_kind(installed.objects, "Deployment", end)["spec"]["template"]["spec"]["containers"]
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        answers(installed.urls[container["name"]] + container[kind]["httpGet"]["path"])


def test_what_helm_test_runs_schedules_sees_and_cancels(installed: Installed) -> None:
    (container,) = of_kind(installed.objects, "Pod", "-test")["spec"]["containers"]
    script, url, topic = container["args"]
    assert url == "http://dq-delayq.shop.svc:8080"
    ran = subprocess.run(
        [sys.executable, "-W", "error", *container["command"][1:], script, installed.urls["api"], topic],
        env=variables(container, installed.secrets, {}) | {"no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "the API is ready\na message was scheduled, seen and cancelled\n"


def test_what_helm_test_runs_fails_without_the_right_to_schedule(installed: Installed) -> None:
    (container,) = of_kind(installed.objects, "Pod", "-test")["spec"]["containers"]
    ran = subprocess.run(
        [sys.executable, *container["command"][1:], container["args"][0], installed.urls["api"], "orders.test"],
        env={"API_KEY": installed.secrets["reader"], "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("delayq test: 403: ")


def test_keda_finds_numbers_where_it_looks_and_needs_the_readers_key(installed: Installed) -> None:
    answers(installed.urls["api"] + "/readyz")
    triggers = of_kind(render("keda"), "ScaledObject")["spec"]["triggers"]
    assert len(triggers) == 2
    for trigger in triggers:
        path = trigger["metadata"]["url"].removeprefix("http://dq-delayq.shop.svc:8080")
        answer = ask(installed.urls["api"] + path, installed.secrets["reader"])
        assert type(answer.json()[trigger["metadata"]["valueLocation"]]) is int
        assert ask(installed.urls["api"] + path).status_code == 401


def test_prometheus_finds_metrics_where_it_looks(installed: Installed) -> None:
    for end, name in (("-api", "api"), ("-workers", "worker")):
        (endpoint,) = of_kind(installed.objects, "ServiceMonitor", end)["spec"]["endpoints"]
        url = installed.urls[name] + endpoint["path"]
        answers(installed.urls[name] + "/livez")
        credentials = endpoint.get("authorization", {}).get("credentials")
        assert "delayq_" in ask(url, installed.secrets[credentials["name"]] if credentials else "").text


def test_a_worker_tells_where_its_own_port_is(installed: Installed) -> None:
    def lines() -> Any:
        answer = ask(installed.urls["api"] + "/v1/nodes", installed.secrets["reader"])
        return answer.json()["nodes"] if answer.status_code == 200 else []

    answers(installed.urls["api"] + "/livez")
    (line,) = eventually(lines, "the worker says of itself")
    assert (line["node"], line["address"]) == ("pod", installed.urls["worker"].removeprefix("http://"))


def test_both_end_in_order_when_they_are_asked_to(installed: Installed) -> None:
    for process in installed.processes:
        assert process.stop() == 0, process.said()
