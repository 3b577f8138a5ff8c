"""Groups of Redis servers on loopback: a primary and replicas behind sentinels, and a Redis Cluster."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.harness import wait_for
from benchmarks.running.processes import connect
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, die_with_parent, free_port

SERVICE: Final = "delayq"
SLOTS: Final = 16_384
DOWN_AFTER: Final = 1_000
NODE_TIMEOUT: Final = 2_000
PATIENCE: Final = 60
_REPLICATION: Final = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
_SENTINEL: Final = f"""\
port {{port}}
bind {LOCALHOST}
dir {{folder}}
sentinel monitor {SERVICE} {LOCALHOST} {{primary}} 2
sentinel down-after-milliseconds {SERVICE} {{down_after}}
sentinel failover-timeout {SERVICE} 5000
sentinel parallel-syncs {SERVICE} 2
"""


class Group:
    """The servers, and the URL of the group."""

    def __init__(self, url: str, servers: list[EmbeddedServer]) -> None:
        self.url = url
        self.servers = servers

    @property
    def pids(self) -> dict[str, int | None]:
        """The process id of each server, by its name."""
        return {f"server {number}": server.pid for number, server in enumerate(self.servers, 1)}

    def primary_of(self, key: str) -> EmbeddedServer:
        """The server that accepts writes of this key."""
        client = connect(self.url)
        try:
            kwargs = client.connection_pool.connection_kwargs if isinstance(client, redis.Redis) else None
            port = kwargs["port"] if kwargs else client.get_node_from_key(key).port
        finally:
            client.close()
        return next(server for server in self.servers if server.port == port)

    def followed(self, replicas: int) -> bool:
        """Whether every primary has this many replicas that follow it."""
        found = [_replication(server) for server in self.servers]
        return all(
            one.get("connected_slaves", 0) >= replicas
            and all(one[f"slave{number}"]["state"] == "online" for number in range(replicas))
            if one.get("role") == "master"
            else one.get("master_link_status") == "up"
            for one in found
        )


def _ask(server: EmbeddedServer, *words: object) -> Any:
    with redis.Redis.from_url(server.url, protocol=2, socket_timeout=10) as client:
        return client.execute_command(*words)


def _replication(server: EmbeddedServer) -> dict[str, Any]:
    try:
        with redis.Redis.from_url(server.url, protocol=2, socket_timeout=10) as client:
            found: Any = client.info("replication")
    except redis.exceptions.RedisError:
        return {"role": "master"}  # it does not answer, so no replica follows it
    return dict(found)


@contextmanager
def sentinels() -> Iterator[Group]:
    """A primary, two replicas and three sentinels. The sentinels stop first, so that they start no fail-over."""
    with ExitStack() as stack:
        servers: list[EmbeddedServer] = []
        for _ in range(3):
            follow = ("--replicaof", LOCALHOST, str(servers[0].port)) if servers else ()
            servers.append(stack.enter_context(EmbeddedServer(extra=(*_REPLICATION, *follow))))
        ports = [_start_sentinel(stack, servers[0]) for _ in range(3)]
        group = Group("redis+sentinel://" + ",".join(f"{LOCALHOST}:{port}" for port in ports) + f"/{SERVICE}", servers)
        wait_for("replicas that follow", lambda: group.followed(2), seconds=PATIENCE)
        wait_for("sentinels that know each other", lambda: all(map(_knows_all, ports)), seconds=PATIENCE)
        yield group


def _start_sentinel(stack: ExitStack, primary: EmbeddedServer) -> int:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="delayq-bench-sentinel-"))
    port = free_port()
    config = Path(folder) / "sentinel.conf"
    config.write_text(_SENTINEL.format(port=port, folder=folder, primary=primary.port, down_after=DOWN_AFTER))
    process = subprocess.Popen(
        die_with_parent([str(primary.binary), str(config), "--sentinel"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stack.callback(_end, process)
    return port


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _knows_all(port: int) -> bool:
    try:
        with redis.Redis(host=LOCALHOST, port=port, protocol=2, socket_timeout=10) as client:
            seen: Any = client.sentinel_master(SERVICE)
    except redis.exceptions.RedisError:
        return False
    return bool(seen["num-slaves"] == 2 and seen["num-other-sentinels"] == 2 and seen["flags"] == "master")


@contextmanager
def cluster(primaries: int, *, replicas: bool) -> Iterator[Group]:
    """A Redis Cluster with this many primaries, each with one replica or none. The replicas stop first."""
    with ExitStack() as stack:
        servers = [stack.enter_context(_member()) for _ in range(primaries * (1 + replicas))]
        _join(servers, primaries)
        group = Group("redis+cluster://" + ",".join(f"{LOCALHOST}:{one.port}" for one in servers), servers)
        wait_for("replicas that follow", lambda: group.followed(int(replicas)), seconds=PATIENCE)
        wait_for("a healthy cluster", lambda: all(map(_healthy, servers)), seconds=PATIENCE)
        yield group


def _member() -> EmbeddedServer:
    port, timeout = str(free_port()), str(NODE_TIMEOUT)
    options = ["--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", timeout]
    options += ["--cluster-require-full-coverage", "no", "--auto-aof-rewrite-percentage", "0"]
    return EmbeddedServer(extra=[*options, *_REPLICATION])


def _join(servers: list[EmbeddedServer], primaries: int) -> None:
    first = servers[0]
    for number, server in enumerate(servers):
        _ask(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for number, server in enumerate(servers[:primaries]):
        _ask(server, "CLUSTER", "ADDSLOTSRANGE", SLOTS * number // primaries, SLOTS * (number + 1) // primaries - 1)
    for server in servers[1:]:
        bus = _ask(server, "CONFIG", "GET", "cluster-port")[1].decode()
        _ask(first, "CLUSTER", "MEET", LOCALHOST, server.port, bus)
    for server in servers:
        wait_for("servers that know each other", lambda one=server: _known(one) == len(servers), seconds=PATIENCE)  # type: ignore[misc]  # a default binds it
    for primary, replica in zip(servers, servers[primaries:], strict=False):
        id = _ask(primary, "CLUSTER", "MYID")
        wait_for("a replica's primary", lambda one=replica, id=id: _replicate(one, id), seconds=PATIENCE)  # type: ignore[misc]  # defaults bind them


def _known(server: EmbeddedServer) -> int:
    return sum("handshake" not in line for line in _ask(server, "CLUSTER", "NODES").decode().splitlines())


def _replicate(server: EmbeddedServer, id: bytes) -> bool:
    try:
        _ask(server, "CLUSTER", "REPLICATE", id)
    except redis.exceptions.ResponseError:  # it does not know that primary yet
        return False
    return True


def _healthy(server: EmbeddedServer) -> bool:
    info = _ask(server, "CLUSTER", "INFO").decode()
    return "cluster_state:ok" in info and f"cluster_slots_ok:{SLOTS}" in info
