"""The programs in examples/, as a reader starts them: each handles every message, and the one that it hands back twice."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.jars import cache, find_java
from testbed.kafka import Kafka
from tests.clients.conftest import run_program
from tests.support.hand_backs import next_id
from tests.support.service import ROOT, OneProcess, Service
from tests.support.timeouts import HTTP_TIMEOUT, REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

EXAMPLES: Final = ROOT / "examples"
#: The body of the message that each example hands back at first.
BUSY: Final = "order 43"
BODIES: Final = ("order 42", BUSY, "order 44")
#: Compiles the client and the example together.
BOTH: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId><artifactId>both</artifactId><version>1</version><packaging>pom</packaging>
  <modules><module>client</module><module>example</module></modules>
</project>
"""


@contextmanager
def running(name: str, command: Sequence[Any], log: Path, environment: Mapping[str, str]) -> Iterator[OneProcess]:
    """Run an example, and stop it as its user does."""
    process = OneProcess(name, [str(word) for word in command], {}, log)
    process.environment.update(environment)
    process.start()
    try:
        yield process
    finally:
        if process.alive:
            process.stop()


def schedule(service: Service, topic: str) -> list[str]:
    """Schedule the messages, whose hand-backs last no longer than they have to, and return their ids."""
    policy = {"match": topic, "backoff": ["1ms"]}
    assert service.http.put(f"/v1/policies/{topic}", json=policy).status_code in (200, 201)
    ids = [f"{topic}-{body.split()[1]}" for body in BODIES]
    for id, body in zip(ids, BODIES, strict=True):
        assert service.schedule(topic, id=id, body=body, delayTime=0).status_code == 201
    return ids


def printed(process: OneProcess) -> list[str]:
    """The complete lines that it printed so far."""
    return process.said().splitlines()


def test_the_fastapi_application_handles_each_message_and_hands_one_back(service: Service, tmp_path: Path) -> None:
    first, busy, last = schedule(service, "orders.paid")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", port]
    command += ["--app-dir", EXAMPLES / "fastapi-consumer"]
    environment = {"DELAYQ_REDIS_URL": service.settings["redis_url"]}
    with (
        running("fastapi", command, tmp_path / "log", environment) as process,
        httpx2.Client(base_url=f"http://{LOCALHOST}:{port}", timeout=HTTP_TIMEOUT) as http,
    ):
        eventually(lambda: "Uvicorn running" in process.said(), "the application serves")
        eventually(lambda: len(http.get("/calls").json()) >= 4, "the handler was called 4 times")
        eventually(lambda: acknowledged(service, "orders.paid"), "each message is acknowledged")
        calls: list[dict[str, Any]] = http.get("/calls").json()
    assert "Application shutdown complete" in process.said()
    wanted = {(first, 0): 1, (busy, 0): 1, (busy, 1): 1, (last, 0): 1}
    assert Counter((one["id"], one["handBacks"]) for one in calls) == wanted


def acknowledged(service: Service, topic: str) -> bool:
    """Whether the group of a topic has acknowledged every message."""
    groups: list[dict[str, Any]] = service.http.get("/v1/consumers", params={"match": topic}).json()["groups"]
    return [one["lag"] for one in groups] == [0]


@pytest.mark.skipif(shutil.which("go") is None, reason="no go on PATH: install Go 1.23 or newer (https://go.dev/dl)")
def test_the_go_program_handles_each_message_and_hands_one_back(service: Service, tmp_path: Path) -> None:
    source = EXAMPLES / "go-consumer"
    assert run_program(["gofmt", "-l", "."], source) == ""
    run_program(["go", "vet", "./..."], source)
    run_program(["go", "build", "-o", tmp_path / "consumer", "."], source)
    first, busy, last = schedule(service, "orders.shipped")
    with running("go", [tmp_path / "consumer"], tmp_path / "log", {"DELAYQ_API_URL": service.url}) as process:
        eventually(lambda: len(printed(process)) >= 4, "the handler was called 4 times")
        eventually(lambda: acknowledged(service, "orders.shipped"), "each message is acknowledged")
    lines = [f"{first} handled", f"{busy} handed back: the mail server is busy", f"{busy} handled", f"{last} handled"]
    assert sorted(printed(process)) == sorted(lines)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def java_program(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The command that runs the example in Java, compiled beside the client that it needs."""
    folder = tmp_path_factory.mktemp("java")
    for name, source in (("client", ROOT / "clients" / "java"), ("example", EXAMPLES / "kafka-java-hand-back")):
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("target"))
    (folder / "pom.xml").write_text(BOTH, encoding="utf-8")
    run_program(["mvn", "--batch-mode", "--quiet", "compile"], folder)
    classes = [*(folder / name / "target" / "classes" for name in ("client", "example")), cache("kafka") / "*"]
    return [find_java("the example"), "-cp", ":".join(map(str, classes)), "HandBack"]


@pytest.mark.xdist_group("kafka")
@pytest.mark.skipif(
    shutil.which("mvn") is None or shutil.which("javac") is None,
    reason="no mvn or javac on PATH: install Maven and a JDK (apt install maven default-jdk)",
)
def test_the_java_program_hands_a_message_of_kafka_back(
    kafka: Kafka, java_program: list[object], own_valkey: EmbeddedServer, tmp_path: Path
) -> None:
    routes = json.dumps([{"name": "kafka", "match": "*", "target": kafka.url}])
    with Service(tmp_path, own_valkey.url, queues="2", redis_timeout=str(REDIS_TIMEOUT), routes=routes) as service:
        first, busy, last = schedule(service, "orders.overdue")
        environment = {"DELAYQ_API_URL": service.url, "KAFKA_SERVERS": kafka.servers}
        with running("java", java_program, tmp_path / "log", environment) as process:

            def lines() -> list[str]:
                return [line for line in printed(process) if line.startswith("orders.overdue-")]

            eventually(lambda: len(lines()) >= 4, "the handler was called 4 times")
    again = next_id(busy, 1, "orders.overdue")
    wanted = [f"{first} handled", f"{busy} handed back as {again}: the mail server is busy"]
    assert sorted(lines()) == sorted([*wanted, f"{again} handled", f"{last} handled"])
