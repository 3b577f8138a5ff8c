"""A name that leads to a primary, and after a fail-over to another server, while the old primary lives on as a replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually


class MovingName:
    """Two servers, and the name of the one that leads; no connection is ever closed by this side."""

    def __init__(self, old: ServerUnderTest, new: ServerUnderTest, name: FaultProxy) -> None:
        self.old = old
        self.new = new
        self.name = name
        self.url = name.url

    def promote(self) -> None:
        """The other server leads, and the old primary follows it. The name stays."""
        self.old.admin.set("behind what was accepted", 1)
        assert self.old.admin.wait(1, 10_000) == 1
        self.new.admin.execute_command("REPLICAOF", "NO", "ONE")
        self.old.admin.execute_command("REPLICAOF", LOCALHOST, self.new.port)

    def move(self) -> None:
        """A fail-over: the name leads to the other server, which is the primary now."""
        self.name.lead_to(self.new.port)
        self.promote()

    def settle(self) -> None:
        """Begin again, empty, with whichever server leads; the other one follows it."""
        if self.old.admin.info("replication")["role"] != "master":
            self.old, self.new = self.new, self.old
        self.name.lead_to(self.old.port)
        self.name.reset()
        self.old.flush()
        eventually(self.follows, "the other server follows")

    def follows(self) -> bool:
        """Whether the server that does not lead has what the other one has."""
        found: list[Any] = [one.admin.info("replication") for one in (self.old, self.new)]
        return any(one["role"] == "slave" and one["master_link_status"] == "up" for one in found)


@contextmanager
def moving_name() -> Iterator[MovingName]:
    """A name, a primary and its replica, on two running servers."""
    with ExitStack() as stack:
        at_once = ["--repl-diskless-sync-delay", "0"]
        first = stack.enter_context(EmbeddedServer(extra=at_once))
        second = stack.enter_context(EmbeddedServer(extra=[*at_once, "--replicaof", LOCALHOST, str(first.port)]))
        old, new = ServerUnderTest("valkey", first.url), ServerUnderTest("valkey", second.url)
        for one in (old, new):
            stack.callback(one.close)
        made = MovingName(old, new, stack.enter_context(FaultProxy(first.port)))
        eventually(made.follows, "the other server follows")
        yield made
