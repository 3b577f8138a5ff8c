"""Every command of docker-compose.yml, run without Docker with the environment that the file gives."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from delayq.processes import LOCALHOST
from delayq.spark.session import check_java
from servers.errors import ServerMissing
from servers.jars import find_java
from servers.kafka import Kafka
from servers.process import ServerProcess
from servers.rabbitmq import RabbitMQ
from servers.rocketmq import RocketMQ
from servers.zookeeper import find_jars
from tests.deploy.compose import COMPOSE, Container, Names, in_order, load, replicas
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAVA = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
LISTENS = {"redis": 6379, "api": 8080, "worker": 8081}


class Stack:
    """The services that need no profile, started in the file's order, each when those before it are healthy.

    Brokers have their addresses, and are not there yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: dict[str, Any] = load(COMPOSE.read_text(), {"DELAYQ_RABBITMQ_PASSWORD": "guest"})["services"]
        self.names = Names(self.services)
        self.kafka, self.rocketmq, self.rabbitmq = Kafka(), RocketMQ(), RabbitMQ()
        self.names.put("kafka:9092", self.kafka.servers)
        self.kafka._settings.update(self._kafka_settings())
        self.names.put("rocketmq:8081", self.rocketmq.endpoints)
        self.names.put("rabbitmq:5672", self.rabbitmq.url.rpartition("@")[2].partition("/")[0])
        self.names.words["user: delayq"] = "user: guest"
        self.containers: dict[str, list[Container]] = {}
        self._java: list[ServerProcess] = []

    def _kafka_settings(self) -> dict[str, str]:
        """What the image's start script makes of these variables, at ports of this machine."""
        given = self.services["kafka"]["environment"]
        settings = {key.removeprefix("KAFKA_").lower().replace("_", "."): value for key, value in given.items()}
        del settings["log.dirs"]
        ports = {port: self.names.port("kafka", port) for port in (9092, 9093, 9094)}

        def local(value: str) -> str:
            value = re.sub(r"(?<=://)(kafka)?(?=:)|(?<=@)kafka(?=:)", LOCALHOST, value)
            return re.sub(r"(?<=:)\d{4}\b", lambda match: str(ports[int(match.group())]), value)

        return {key: local(value) for key, value in settings.items()}

    def start(self) -> None:
        """Start everything."""
        for name in in_order(self.services):
            if self.services[name].get("profiles"):
                continue
            self.containers[name] = [self.make(name, number) for number in range(replicas(self.services[name]))]
            for one in self.containers[name]:
                if name.startswith("zookeeper-"):
                    self._start_zookeeper(name, one)
                elif name == "redis":
                    one.start("--port", str(one.ports[6379]), "--bind", LOCALHOST)
                else:
                    one.start()
            if not name.startswith("zookeeper-"):  # one alone is no quorum
                for one in self.containers[name]:
                    one.wait()
            elif name == "zookeeper-3":
                for member in ("zookeeper-1", "zookeeper-2", "zookeeper-3"):
                    eventually(partial(self.check, member), f"{member} is healthy", 90)

    def make(self, name: str, number: int) -> Container:
        """A container of a service; its name is its host's."""
        port = LISTENS.get(name, 2181)
        # One port stands for the service's name; of several containers each has its own.
        here = (
            self.names.port(name, port)
            if replicas(self.services[name]) == 1
            else self.names.port(f"{name}-{number}", port)
        )
        node = {"DELAYQ_NODE": f"{name}-{number}"} if name == "worker" else {}
        return Container(f"{name}-{number}", self.services[name], self.names, {port: here}, self.folder, **node)

    def check(self, name: str) -> bool:
        """What a ZooKeeper's health check says."""
        (one,) = self.containers[name]
        return one.run(*self.services[name]["healthcheck"]["test"][1:]).returncode == 0

    def _start_zookeeper(self, name: str, one: Container) -> None:
        """Write what the image's start script writes of these variables, and start the server as that does."""
        given = self.services[name]["environment"]
        folder = self.folder / one.name
        (folder / "data").mkdir()
        (folder / "data" / "myid").write_text(given["ZOO_MY_ID"])
        members = []
        for member in given["ZOO_SERVERS"].split():
            number, _, address = member.partition("=")
            host, peer, vote = address.partition(";")[0].split(":")
            ports = ":".join(str(self.names.port(host, int(port))) for port in (peer, vote))
            members.append(f"{number}={LOCALHOST}:{ports};{LOCALHOST}:{self.names.port(host, 2181)}")
        settings = {
            "dataDir": folder / "data", "tickTime": 2000, "initLimit": 5, "syncLimit": 2, "maxClientCnxns": 60,
            "standaloneEnabled": given["ZOO_STANDALONE_ENABLED"], "admin.enableServer": given["ZOO_ADMINSERVER_ENABLED"],
            "autopurge.purgeInterval": given["ZOO_AUTOPURGE_PURGEINTERVAL"], "preAllocSize": 256,
        }  # fmt: skip
        config = folder / "zoo.cfg"
        config.write_text("\n".join([*(f"{key}={value}" for key, value in settings.items()), *members, ""]))
        command = [str(find_java("ZooKeeper")), *JAVA, "-cp", ":".join(find_jars()), ZOOKEEPER, str(config)]
        process = ServerProcess(name, command, log=one.log)
        process.start()
        self._java.append(process)

    def stop(self) -> dict[str, int | None]:
        """Stop in the opposite order; how delayq's own processes and Redis ended."""
        ended = {one.name: one.stop() for name in reversed(self.containers) for one in self.containers[name]}
        for process in self._java:
            process.kill()
        for broker in (self.kafka, self.rocketmq, self.rabbitmq):
            broker.stop()
        return ended

    def api(self, number: int) -> httpx2.Client:
        """A client of one of the APIs."""
        return httpx2.Client(base_url=f"http://{LOCALHOST}:{self.containers['api'][number].ports[8080]}", timeout=20)

    def deliver(self, topic: str, id: str) -> None:
        """Schedule at one API, and ask the other until it is delivered."""
        with self.api(0) as one, self.api(1) as other:
            message = {"topic": topic, "body": {"n": 1}, "delayTime": "1ms", "id": id}
            assert one.post("/v1/messages", json=message).status_code in (200, 201)
            eventually(lambda: other.get(f"/v1/messages/{id}").json().get("state") == "delivered", f"{id} is there", 60)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    try:
        find_java("a ZooKeeper ensemble")
        find_jars()
    except ServerMissing as error:
        pytest.skip(str(error))
    if shutil.which("redis-cli") is None:
        pytest.skip("no redis-cli, which the health check of Redis is: install it (apt install redis-tools)")
    made = Stack(tmp_path_factory.mktemp("compose"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_message_is_scheduled_at_one_api_and_delivered_as_the_other_knows(stack: Stack) -> None:
    stack.deliver("orders.unpaid", "unpaid-42")


def test_the_three_workers_share_the_queues_by_the_ensemble(stack: Stack) -> None:
    def shared() -> bool:
        ran = stack.containers["worker"][0].run("python", "-m", "coordinator", "--once", "--json")
        assert ran.returncode == 0, ran.stderr
        seen = json.loads(ran.stdout)
        counts = sorted(len(node["queues"]) for node in seen["nodes"])
        return counts == [5, 5, 6] and not seen["unowned"]

    eventually(shared, "all queues are shared", 60)


def test_the_doctor_finds_nothing_to_complain_of_but_an_open_redis(stack: Stack) -> None:
    ran = stack.containers["api"][0].run("delayq", "doctor", "--json")
    assert ran.returncode == 0, ran.stdout
    assert {one["result"] for one in json.loads(ran.stdout)["checks"]} <= {"ok", "warn"}


@pytest.mark.parametrize("broker", ["kafka", "rocketmq", "rabbitmq"])
def test_a_broker_that_comes_later_gets_what_its_route_takes(stack: Stack, broker: str) -> None:
    server: Kafka | RocketMQ | RabbitMQ = getattr(stack, broker)
    try:
        server.start()
    except ServerMissing as error:
        pytest.skip(str(error))
    server.make_topic("delayq")
    stack.deliver(f"{broker}.orders", f"{broker}-1")


def test_the_example_of_a_backfill_schedules_its_table(stack: Stack) -> None:
    try:
        check_java()
    except Exception as error:
        pytest.skip(str(error))
    one = Container("backfill", stack.services["backfill"], stack.names, {}, stack.folder)
    one.start("--json", "--master", "local[1]")
    assert one.ended() == 0, one.said()
    assert '"scheduled":2' in one.said().replace(" ", "")


def test_all_stop_in_order_and_come_back_with_what_they_had(stack: Stack) -> None:
    with stack.api(0) as api:
        kept = {"topic": "orders", "body": "kept", "delayTime": "1h", "id": "kept"}
        assert api.post("/v1/messages", json=kept).status_code == 201
    assert [stack.containers["worker"][0].stop(), stack.containers["api"][0].stop()] == [0, 0]
    (redis,) = stack.containers["redis"]
    assert redis.stop() == 0
    redis.start("--port", str(redis.ports[6379]), "--bind", LOCALHOST)
    redis.wait()
    with stack.api(1) as api:
        eventually(lambda: api.get("/v1/messages/kept").status_code == 200, "the message is there")
