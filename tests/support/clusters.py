"""A real Redis Cluster: three primaries with a replica each, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store.connect.cluster_exchange import slot_of
from testbed.process import stand_still
from tests.support.servers import REDIS_SERVER, ServerUnderTest
from tests.support.timeouts import NODE_TIMEOUT, PATIENCE
from tests.support.waiting import eventually

PRIMARIES = 3
SLOTS = 16_384
#: Of delayq, in the tests on a cluster.
QUEUES = 16


def id_in(queue: int, name: str) -> str:
    """An id that lives in this queue."""
    return f"{name}.{queue:04x}"


class Member:
    """One server of a cluster or of a group behind sentinels, and a plain client of it."""

    def __init__(self, server: EmbeddedServer, password: str | None = None) -> None:
        self.server = server
        self.admin: Any = redis.Redis.from_url(server.url, password=password, protocol=2, socket_timeout=PATIENCE)

    @classmethod
    def started(cls, *extra: str, password: str | None = None) -> Member:
        """A server of its own: the Redis of the system where there is one, else the embedded Valkey."""
        server = EmbeddedServer(binary=cls.binary(), extra=extra)
        server.start()
        return cls(server, password)

    @staticmethod
    def binary() -> Path | None:
        """The Redis of the system; None: the embedded Valkey."""
        return Path(REDIS_SERVER) if REDIS_SERVER else None

    @property
    def port(self) -> int:
        return self.server.port

    def wait_for_its_file(self) -> None:
        """Wait until the append-only file that was just switched on is complete: before that, a server does not end by
        SIGTERM.
        """
        busy = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
        eventually(lambda: not any(self.info("persistence").get(name, 1) for name in busy), "its file is whole")

    def info(self, section: str) -> dict[str, Any]:
        """INFO; empty while it is away."""
        try:
            found: dict[str, Any] = self.admin.info(section)
        except redis.exceptions.RedisError:
            return {}
        return found

    def cluster(self, *words: str) -> str:
        """The text of a CLUSTER command; empty while it is away."""
        try:
            text: bytes = self.admin.execute_command("CLUSTER", *words)
        except redis.exceptions.ConnectionError:
            return ""
        return text.decode()

    @property
    def is_primary(self) -> bool:
        return self.info("replication").get("role") == "master"

    @property
    def replicas(self) -> int:
        """Return how many replicas follow it and report that; for a moment after it has loaded, a replica reports
        nothing.
        """
        replication = self.info("replication")
        followers = [replication.get(f"slave{number}", {}) for number in range(replication.get("connected_slaves", 0))]
        return sum(one.get("state") == "online" and one.get("offset", 0) > 0 for one in followers)

    @property
    def follows(self) -> bool:
        """Whether it is a replica that has what its primary has."""
        replication = self.info("replication")
        return replication.get("role") == "slave" and replication.get("master_link_status") == "up"

    def close(self) -> None:
        self.admin.close()
        self.server.stop()


class ClusterUnderTest(ServerUnderTest):
    """The cluster: its URL, a client of the cluster, and its members."""

    def __init__(self, members: list[Member]) -> None:
        self.kind = "cluster"
        self.members = members
        self.url = "redis+cluster://" + ",".join(f"{LOCALHOST}:{one.port}" for one in members[:2])
        self.admin: Any = None
        self._join()

    def _join(self) -> None:
        primaries = self.members[:PRIMARIES]
        for number, one in enumerate(self.members):
            one.admin.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        share = SLOTS // PRIMARIES
        for number, one in enumerate(primaries):
            last = SLOTS - 1 if number == PRIMARIES - 1 else (number + 1) * share - 1
            one.admin.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        for one in self.members[1:]:
            bus = int(one.admin.config_get("cluster-port")["cluster-port"])
            self.members[0].admin.execute_command("CLUSTER", "MEET", LOCALHOST, one.port, bus)
        for one in self.members:
            eventually(lambda one=one: self._knows(one) == len(self.members), "all servers know each other")  # type: ignore[misc]  # a default binds it
        for primary, replica in zip(primaries, self.members[PRIMARIES:], strict=True):
            id = primary.cluster("MYID")
            # The replica may not have its primary's id yet.
            eventually(lambda replica=replica, id=id: self._replicate(replica, id), "a replica has its primary")  # type: ignore[misc]  # defaults bind them
        self.heal()
        self.admin = redis.RedisCluster(host=LOCALHOST, port=self.members[0].port, protocol=2, socket_timeout=PATIENCE)

    @staticmethod
    def _knows(one: Member) -> int:
        return len([line for line in one.cluster("NODES").splitlines() if "handshake" not in line])

    @staticmethod
    def _replicate(replica: Member, id: str) -> bool:
        try:
            replica.admin.execute_command("CLUSTER", "REPLICATE", id)
        except redis.exceptions.ResponseError:
            return False
        return True

    def heal(self) -> None:
        """Start the servers that a test killed, and wait until every primary has its replica and all agree."""
        for one in self.members:
            one.server.start()
        eventually(self._well, "the cluster is well")

    def _well(self) -> bool:
        primaries = self.primaries
        return (
            all("cluster_state:ok" in one.cluster("INFO") for one in self.members)
            and len(primaries) == PRIMARIES
            and all(one.replicas == 1 for one in primaries)
            and all(one.follows for one in self.members if one not in primaries)
            and len({self._view(one) for one in self.members}) == 1
        )

    @staticmethod
    def _view(one: Member) -> tuple[tuple[str, ...], ...]:
        """Who it thinks is what, and serves which slots."""
        rows = [line.split() for line in one.cluster("NODES").splitlines()]
        return tuple(sorted((row[0], row[2].removeprefix("myself,"), *row[8:]) for row in rows))

    @property
    def primaries(self) -> list[Member]:
        """Who serves slots now."""
        return [one for one in self.members if one.is_primary]

    def primary_of(self, key: str) -> Member:
        """The server that has this key."""
        node = self.admin.get_node_from_key(key)
        return next(one for one in self.members if one.port == node.port)

    def replace(self, dead: Member) -> None:
        """Make the replica of a killed primary the primary at once, as the cluster does by itself after NODE_TIMEOUT."""
        (replica,) = (one for one in self.members if one.info("replication").get("master_port") == dead.port)
        replica.admin.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
        eventually(lambda: replica.is_primary, "its replica is the primary")

    def pause(self) -> None:
        """SIGSTOP for the first primary; if that takes long its replica replaces it."""
        pid = self.primaries[0].server.pid
        assert pid is not None
        self._pid = pid
        stand_still(pid)

    def flush(self) -> None:
        for one in self.primaries:
            one.admin.flushall()
        self.admin.nodes_manager.initialize()

    def publish(self, channel: str, message: str) -> None:
        # From where the scripts of that queue publish: two servers' messages may overtake each other.
        self.primary_of(channel).admin.publish(channel, message)

    def move_slot(self, key: str, to: Member) -> Iterator[None]:
        """Move the slot of a key by hand, a key at a time; between the steps the caller may do something."""
        slot = slot_of(key)
        source = self.primary_of(key)
        ids = {one.port: one.cluster("MYID") for one in (source, to)}
        to.admin.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
        source.admin.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to.port])
        yield
        while keys := source.admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.admin.execute_command("MIGRATE", LOCALHOST, to.port, "", 0, 5_000, "KEYS", *keys)
            yield
        for one in (to, source, *self.primaries):
            one.admin.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[to.port])
        self.admin.nodes_manager.initialize()

    def close(self) -> None:
        if self.admin is not None:
            self.admin.close()


@contextmanager
def real_cluster() -> Iterator[ClusterUnderTest]:
    """Six servers, stopped in order: replicas first, so that none takes over."""
    options = (
        f"--cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout {NODE_TIMEOUT} "
        "--cluster-require-full-coverage no --cluster-allow-replica-migration no "
        "--repl-diskless-sync-delay 0 --repl-ping-replica-period 1"
    )
    with ExitStack() as stack:
        members = []
        for _ in range(2 * PRIMARIES):
            member = Member.started(*options.split(), "--cluster-port", str(free_port()))
            stack.callback(member.close)
            members.append(member)
        cluster = ClusterUnderTest(members)
        stack.callback(cluster.close)
        yield cluster
