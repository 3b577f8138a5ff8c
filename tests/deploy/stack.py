"""docker-compose.yml's services started as Compose starts them: in order, each when those before it are healthy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from delayq.embedded.processes import LOCALHOST
from testbed.rabbitmq import RabbitMQ
from testbed.rocketmq import Ports
from tests.deploy.compose import COMPOSE, Container, Image, Names, in_order, load, replicas
from tests.deploy.images import grafana_image, kafka_image, prometheus_image, rocketmq_image, scrape, zookeeper_image
from tests.support.waiting import eventually

__all__ = ["LISTENS", "Stack"]

#: The ports of each service that others come to.
LISTENS = {
    "redis": (6379,), "zookeeper-1": (2181,), "zookeeper-2": (2181,), "zookeeper-3": (2181,), "api": (8080,),
    "worker": (8081,), "kafka": (9092, 9093, 9094), "rocketmq-names": (9876,), "rocketmq": (8081,), "prometheus": (9090,),
    "grafana": (3000,),
}  # fmt: skip


class Stack:
    """The services that need no profile; those of a profile have their addresses, and come up when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: dict[str, Any] = load(COMPOSE.read_text(), {})["services"]
        self.names = Names(self.services)
        self.containers: dict[str, list[Container]] = {}
        self.rabbitmq = RabbitMQ(variables=self.services["rabbitmq"]["environment"])
        self.names.put("rabbitmq:5672", f"{LOCALHOST}:{self.rabbitmq.port}")
        self._rocketmq = Ports()
        self.names.put("rocketmq-names:9876", self._rocketmq.names_address)
        self.names.put("rocketmq:8081", f"{LOCALHOST}:{self._rocketmq.grpc}")
        self.rocketmq_address = self._rocketmq.broker

    def start(self) -> None:
        """Start everything that needs no profile. Raises ServerMissing."""
        waiting: list[Container] = []
        for name in in_order(self.services):
            if self.services[name].get("profiles"):
                continue
            if self.services[name].get("depends_on"):
                while waiting:  # one ZooKeeper alone is no quorum
                    waiting.pop(0).wait()
            self.containers[name] = [self.make(name, number) for number in range(replicas(self.services[name]))]
            for one in self.containers[name]:
                one.start(*self.more(name, one))
            waiting += self.containers[name]
        for one in waiting:
            one.wait()

    def up(self, name: str) -> Container:
        """Start one of a profile, and wait until it is healthy. Raises ServerMissing."""
        one = self.make(name, 0)
        self.containers[name] = [one]
        if name == "prometheus":
            scrape(one.place("/etc/prometheus/prometheus.yml"), self._replicas())
        one.start(*self.more(name, one))
        one.wait()
        return one

    def do(self, name: str, *words: str) -> Container:
        """Run one that ends, with these words behind its command, and wait until it has."""
        one = self.make(name, 0)
        one.start(*words)
        assert one.ended() == 0, one.said()
        return one

    def make(self, name: str, number: int) -> Container:
        """A container of a service; its name is its host's."""
        # One port stands for the service's name; of several containers each has its own.
        host = name if replicas(self.services[name]) == 1 else f"{name}-{number}"
        ports = {port: self.names.port(host, port) for port in LISTENS.get(name, ())}
        node = {"DELAYQ_NODE": f"{name}-{number}"} if name == "worker" else {}
        return Container(
            f"{name}-{number}", self.services[name], self.names, ports, self.folder, image=self._image(name), **node
        )

    def more(self, name: str, one: Container) -> list[str]:
        """What its command is told beside what the file says: where to listen."""
        if name == "redis":
            return ["--port", str(one.ports[6379]), "--bind", LOCALHOST]
        if name == "prometheus":
            return [f"--web.listen-address={LOCALHOST}:{one.ports[9090]}"]
        if name == "grafana":
            return [f"cfg:server.http_addr={LOCALHOST}", f"cfg:server.http_port={one.ports[3000]}"]
        return []

    def stop(self) -> None:
        """Stop in the opposite order."""
        for name in reversed(self.containers):
            for one in self.containers[name]:
                one.stop() if name in ("redis", "api", "worker") else one.kill()
        self.rabbitmq.stop()

    def down(self, *names: str) -> None:
        """End services of a profile at once, and forget their data."""
        for name in names:
            for one in self.containers.pop(name, ()):
                one.kill()

    def api(self, number: int) -> httpx2.Client:
        """A client of one of the APIs."""
        return httpx2.Client(base_url=f"http://{LOCALHOST}:{self.containers['api'][number].ports[8080]}", timeout=20)

    def deliver(self, topic: str, id: str, **fields: str) -> None:
        """Schedule at one API, and ask the other until it is delivered."""
        with self.api(0) as one, self.api(1) as other:
            message = {"topic": topic, "body": {"n": 1}, "delayTime": "1ms", "id": id, **fields}
            taken = one.post("/v1/messages", json=message)
            assert taken.status_code in (200, 201), taken.text
            path = f"/v1/messages/{taken.json()['id']}"
            eventually(lambda: other.get(path).json().get("state") == "delivered", f"{id} is there")

    def _replicas(self) -> dict[tuple[str, int], list[int]]:
        """The ports here of all containers of a service, by its name and port."""
        return {
            (name, port): [one.ports[port] for one in containers]
            for name, containers in self.containers.items()
            for port in LISTENS.get(name, ())
        }

    def _image(self, name: str) -> Image | None:
        folder = self.folder / "images" / name
        if name.startswith("zookeeper-"):
            return zookeeper_image(self.services[name]["environment"], self.names, folder)
        if name.startswith("rocketmq"):
            return rocketmq_image(folder, self._rocketmq)
        if name == "kafka":
            return kafka_image(folder)
        if name == "grafana":
            return grafana_image()
        return prometheus_image() if name == "prometheus" else None
