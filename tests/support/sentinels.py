"""A real group behind sentinels: a primary, two replicas and three sentinels, on loopback."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from delayq.embedded import EmbeddedServer
from delayq.processes import LOCALHOST, die_with_parent, free_port
from tests.support.clusters import Member
from tests.support.servers import REDIS_SERVER
from tests.support.waiting import eventually

SERVICE = "delayq"
CONFIG = f"""\
port {{port}}
bind {LOCALHOST}
dir {{folder}}
logfile {{folder}}/log
sentinel monitor {SERVICE} {LOCALHOST} {{primary}} 2
sentinel down-after-milliseconds {SERVICE} 1000
sentinel failover-timeout {SERVICE} 5000
sentinel parallel-syncs {SERVICE} 2
"""


class Sentinel:
    """One sentinel process."""

    def __init__(self, primary: int) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="delayq-sentinel-")
        config = Path(self._folder.name) / "sentinel.conf"
        config.write_text(CONFIG.format(port=self.port, folder=self._folder.name, primary=primary))
        binary = REDIS_SERVER or str(EmbeddedServer()._binary)
        self._process = subprocess.Popen(
            die_with_parent([binary, str(config), "--sentinel"]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.admin: Any = redis.Redis(host=LOCALHOST, port=self.port, protocol=2, socket_timeout=10)

    def sees(self) -> dict[str, Any]:
        """The group as it sees it; empty while it is not up."""
        try:
            found: dict[str, Any] = self.admin.sentinel_master(SERVICE)
        except redis.exceptions.RedisError:
            return {}
        return found

    def close(self) -> None:
        self.admin.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


class SentinelsUnderTest:
    """The group: its URL, its servers, its sentinels."""

    def __init__(self, members: list[Member], sentinels: list[Sentinel]) -> None:
        self.members = members
        self.sentinels = sentinels
        self.url = "redis+sentinel://" + ",".join(f"{LOCALHOST}:{one.port}" for one in sentinels) + f"/{SERVICE}/0"

    @property
    def primary(self) -> Member:
        """Whom the sentinels name."""
        port = self.sentinels[0].sees()["port"]
        return next(one for one in self.members if one.port == port)

    def heal(self) -> None:
        """Start whom a test killed, and wait until two replicas follow the primary and the sentinels agree."""
        for one in self.members:
            one.server.start()
        eventually(self._well, "the group is well", seconds=60)

    def _well(self) -> bool:
        views = [one.sees() for one in self.sentinels]
        if not all(views) or len({view["port"] for view in views}) != 1:
            return False
        return (
            all(view["num-slaves"] == 2 and view["num-other-sentinels"] == 2 for view in views)
            and all(view["flags"] == "master" for view in views)
            and self.primary.replicas == 2
            and sum(one.follows for one in self.members) == 2
        )

    def flush(self) -> None:
        self.primary.admin.flushall()


@contextmanager
def real_sentinels() -> Iterator[SentinelsUnderTest]:
    """Three servers and three sentinels; the sentinels are stopped first, so that none of them acts on the end."""
    with ExitStack() as stack:
        members: list[Member] = []
        for _ in range(3):
            follow = ["--replicaof", LOCALHOST, str(members[0].port)] if members else []
            member = Member.started("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *follow)
            stack.callback(member.close)
            members.append(member)
        eventually(lambda: members[0].replicas == 2, "both replicas follow")
        sentinels = []
        for _ in range(3):
            sentinels.append(Sentinel(members[0].port))
            stack.callback(sentinels[-1].close)
        group = SentinelsUnderTest(members, sentinels)
        group.heal()
        yield group
