"""A real group behind sentinels: a primary, two replicas and three sentinels, on loopback."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, die_with_parent, free_port
from tests.support.certificates import Authority
from tests.support.clusters import Member
from tests.support.servers import REDIS_SERVER
from tests.support.timeouts import PATIENCE, SENTINEL_DOWN_AFTER
from tests.support.waiting import eventually

SERVICE = "delayq"
#: Replicas follow at once.
QUICK = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
CONFIG = f"""\
port {{port}}
bind {LOCALHOST}
dir {{folder}}
logfile {{folder}}/log
sentinel monitor {SERVICE} {LOCALHOST} {{primary}} {{quorum}}
sentinel down-after-milliseconds {SERVICE} {SENTINEL_DOWN_AFTER}
sentinel failover-timeout {SERVICE} 5000
sentinel parallel-syncs {SERVICE} 2
"""


class Sentinel:
    """One sentinel process; `extra` are more lines of its configuration, `password` that of its default user."""

    def __init__(
        self, primary: int, *, quorum: int = 2, extra: Sequence[str] = (), password: str | None = None
    ) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="delayq-sentinel-")
        config = Path(self._folder.name) / "sentinel.conf"
        text = CONFIG.format(port=self.port, folder=self._folder.name, primary=primary, quorum=quorum)
        config.write_text("\n".join((text, *extra)))
        binary = REDIS_SERVER or str(EmbeddedServer()._binary)
        self._process = subprocess.Popen(
            die_with_parent([binary, str(config), "--sentinel"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.admin: Any = redis.Redis(
            host=LOCALHOST, port=self.port, password=password, protocol=2, socket_timeout=PATIENCE
        )
        eventually(self._made_quick, "the sentinel is up")

    def _made_quick(self) -> bool:
        """Have it check servers and other sentinels every 0.2 s, not every 10 s and 2 s: waiting proves nothing."""
        try:
            self.admin.execute_command("SENTINEL", "DEBUG", "info-period", 200, "publish-period", 200)
        except redis.exceptions.ConnectionError:
            return False
        return True

    def sees(self) -> dict[str, Any]:
        """The group as it sees it; empty while it is not up."""
        try:
            found: dict[str, Any] = self.admin.sentinel_master(SERVICE)
        except redis.exceptions.RedisError:
            return {}
        return found

    def fail_over(self) -> None:
        """Have another one made primary. A fail-over that takes it too long is given up, and is asked for again."""
        old = eventually(self.sees, "it sees the group")["port"]

        def done() -> bool:
            seen = self.sees()
            if seen and seen["port"] == old and "failover" not in seen["flags"]:
                with suppress(redis.exceptions.ResponseError):  # it sees none that is fit yet
                    self.admin.execute_command("SENTINEL", "FAILOVER", SERVICE)
            return bool(seen) and seen["port"] != old

        eventually(done, "another one is primary")

    def close(self) -> None:
        self.admin.close()
        self._process.terminate()
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

    def fail_over(self) -> None:
        """Have another one made primary."""
        self.sentinels[0].fail_over()

    def heal(self) -> None:
        """Start the servers that a test killed, and wait until two replicas follow the primary and the sentinels agree."""
        for one in self.members:
            one.server.start()
        eventually(self._well, "the group is well")

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

    def forget_strangers(self) -> None:
        """Have the sentinels forget a sentinel that a test has ended: they would wait for a known one without end."""
        for one in self.sentinels:
            one.admin.execute_command("SENTINEL", "RESET", SERVICE)

    def flush(self) -> None:
        self.primary.admin.flushall()


@contextmanager
def real_sentinels() -> Iterator[SentinelsUnderTest]:
    """Three servers and three sentinels; the sentinels are stopped first, so that none of them acts on the end."""
    with ExitStack() as stack:
        members: list[Member] = []
        for _ in range(3):
            follow = ["--replicaof", LOCALHOST, str(members[0].port)] if members else []
            member = Member.started(*QUICK, *follow)
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


class GuardedGroup:
    """A primary and a replica behind one sentinel, which has other users than they; by TLS where there are certificates.

    `url` is right; `url_with` is the same with other words for the servers' password and the sentinel's.
    """

    SERVERS, ASKER = "the servers' word", "the sentinel's: +/@"

    def __init__(
        self, members: list[Member], sentinel: Sentinel, sentinel_port: int, authority: Authority | None
    ) -> None:
        self.members = members
        self.sentinel = sentinel
        self._port = sentinel_port
        self._authority = authority
        self.url = self.url_with(self.SERVERS, self.ASKER)

    @property
    def primary(self) -> Member:
        """Who is primary."""
        return next(one for one in self.members if one.is_primary)

    def url_with(self, servers: str, asker: str) -> str:
        scheme = "rediss" if self._authority else "redis"
        tls = f"&ssl_ca_certs={self._authority.file}" if self._authority else ""
        user = f"sentinel_username=asker&sentinel_password={quote(asker, safe='')}"
        return f"{scheme}+sentinel://:{quote(servers, safe='')}@{LOCALHOST}:{self._port}/{SERVICE}/0?{user}{tls}"


@contextmanager
def guarded_group(tls: Path | None) -> Iterator[GuardedGroup]:
    """`tls` is a folder for certificates; None: no TLS."""
    by_tls: dict[str, str] = {}
    authority = Authority(tls) if tls is not None else None
    if authority is not None:
        shown = authority.issue("servers")
        by_tls = {
            "tls-cert-file": str(shown.certificate), "tls-key-file": str(shown.key), "tls-ca-cert-file": str(authority.file),
            "tls-auth-clients": "no", "tls-replication": "yes",
        }  # fmt: skip
    word = GuardedGroup.SERVERS
    with ExitStack() as stack:
        members: list[Member] = []
        ports: list[int] = []  # where a sentinel and the other servers go
        for _ in range(2):
            follow = ["--replicaof", LOCALHOST, str(ports[0])] if members else []
            tls_port = free_port()
            secure = [part for name, value in by_tls.items() for part in (f"--{name}", value)]
            secure += ["--tls-port", str(tls_port)] if tls else []
            words = ["--requirepass", word, "--masterauth", word, *QUICK, *secure, *follow]
            member = Member.started(*words, password=word)
            stack.callback(member.close)
            members.append(member)
            ports.append(tls_port if tls else member.port)
        eventually(lambda: members[0].replicas == 1, "the replica follows")
        sentinel_port = free_port()
        extra = [
            f'sentinel auth-pass {SERVICE} "{word}"', "requirepass admin",
            f'user asker on ">{GuardedGroup.ASKER}" ~* &* +@all',
            *([f"tls-port {sentinel_port}", *map(" ".join, by_tls.items())] if by_tls else ()),
        ]  # fmt: skip
        sentinel = Sentinel(ports[0], quorum=1, extra=extra, password="admin")
        stack.callback(sentinel.close)
        eventually(lambda: sentinel.sees().get("num-slaves") == 1, "the sentinel knows the replica")
        yield GuardedGroup(members, sentinel, sentinel_port if tls else sentinel.port, authority)
