"""`python -m coordinator`: what it reads in a real ZooKeeper, what it prints, and that it changes nothing there."""

from __future__ import annotations

import io
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import CoordinatorError
from coordinator.__main__ import main, watch
from coordinator.printing import Printer
from coordinator.zookeeper.membership import Entry
from coordinator.zookeeper.overview import Member, Overview, Overviews
from delayq.base import local_time
from delayq.base.clock import SystemClock
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from tests.coordinator.team import QUEUES, Team
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.terminal import Terminal
from tests.support.timeouts import SESSION_TIMEOUT
from tests.support.waiting import eventually
from tests.support.zookeeper import ZooKeeperProxy, client

ALL = tuple(range(QUEUES))
AN_HOUR = 3_600_000
Look = Callable[..., Overviews]


@pytest.fixture
def overviews(nodes: Team) -> Iterator[Look]:
    """Makes readers of the team's ZooKeeper, or of it through a proxy."""
    made: list[Overviews] = []

    def make(hosts: str = "", queues: Callable[[], Any] = lambda: ALL, timeout: int = SESSION_TIMEOUT) -> Overviews:
        made.append(Overviews(hosts or nodes.hosts, nodes.root, timeout, queues, SystemClock()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_each_node_is_shown_with_its_queues_and_what_has_no_owner_apart_and_nothing_is_written(
    nodes: Team, overviews: Look
) -> None:
    assert overviews().look() == Overview((), ALL), "before the first worker nobody owns anything"
    with client(nodes.hosts) as admin:

        def tree(path: str) -> dict[str, Any]:
            data, stat = admin.get(path)
            found = {path: (data, stat.mzxid, stat.cversion)}
            for name in admin.get_children(path):
                found |= tree(f"{path}/{name}")
            return found

        assert not admin.exists(nodes.root), "and an unknown root stays unknown"
        one, other = nodes.join("one"), nodes.make("other")
        other.coordinator.start()
        one.coordinator.release(3, one.held.pop(3).epoch)
        shown = [("one", (*ALL[:3], *ALL[4:])), ("other", ())]
        before = tree(nodes.root)
        for queues, unowned in ((ALL, (3,)), (None, None)):  # Redis, which knows all queues, may be away
            seen = overviews(queues=lambda queues=queues: queues).look()
            assert [(member.name, member.queues) for member in seen.members] == shown
            assert seen.unowned == unowned
        assert seen.members[0].entry.address == "127.0.0.1:1"
        assert tree(nodes.root) == before


def test_what_changes_ends_the_wait(nodes: Team, overviews: Look) -> None:
    one, reader = nodes.join("one"), overviews()
    reader.look()
    ended = threading.Event()

    def wait() -> None:
        reader.wait(AN_HOUR)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not ended.is_set()
    one.coordinator.release(0, one.held.pop(0).epoch)
    ended.wait()
    assert 0 in (reader.look().unowned or ())


def test_the_loss_of_zookeeper_ends_the_wait_and_its_return_is_found(
    nodes: Team, zookeeper_proxy: ZooKeeperProxy, overviews: Look
) -> None:
    nodes.join("one")
    reader = overviews(
        zookeeper_proxy.hosts, timeout=1_000
    )  # a look waits for so long; one that is too late is repeated

    def look() -> Overview | None:
        try:
            return reader.look()
        except CoordinatorError:
            return None

    before = eventually(look, "ZooKeeper is there")
    zookeeper_proxy.refuse()
    reader.wait(AN_HOUR)
    assert look() is None
    zookeeper_proxy.heal()
    assert eventually(look, "ZooKeeper is back") == before


# -- what is printed ---------------------------------------------------------------------------------------------------


MEMBERS = (
    Member("w0", Entry(address="h:8081", version="0.1.0", since=1_796_121_000_000), (0, 1, 2, 5)),
    Member("\x1b[2Jw1", Entry(redis="lost", clock="trouble", hold_until=9_000), ()),
)


def printed(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, *overviews: Overview, json: bool = False) -> str:
    monkeypatch.setattr("sys.stdout", out)
    printer = Printer(ManualClock(now=8_000), json=json)
    for one in overviews:
        printer.overview(one)
    return out.getvalue()


def test_a_terminal_gets_a_table_that_it_does_not_obey_a_script_tabs_and_a_program_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = printed(monkeypatch, Terminal(), Overview(MEMBERS, (3, 4)))
    assert "2 nodes, 4 of 6 queues owned; without an owner: 3-4" in shown
    assert "0-2,5" in shown and "h:8081" in shown and "state" in shown
    assert local_time.in_sentence("left out until 1970-01-01T00:00:09.000Z") in shown
    assert "\x1b[2J" not in shown and "\\x1b[2Jw1" in shown
    lines = printed(monkeypatch, io.StringIO(), Overview(MEMBERS[:1], None)).splitlines()
    assert lines[0].split("\t")[1] == "1 node, 4 queues owned; Redis, which has the list of queues, does not answer"
    assert lines[1].split("\t")[:4] == ["w0", "4", "0-2,5", "live"]
    line = printed(monkeypatch, io.StringIO(), Overview(MEMBERS, (3, 4)), json=True)
    assert line.count("\n") == 1
    first, second = json.loads(line)["nodes"]
    assert first["queues"] == [0, 1, 2, 5] and first["leftOutUntil"] is None
    assert second["redis"] == "lost" and second["leftOutUntil"] == "1970-01-01T00:00:09.000Z"


class Scripted(Overviews):
    """Answers as it is told, then ends."""

    def __init__(self, *answers: Overview | None) -> None:
        self.answers = list(answers)

    def look(self) -> Overview:
        if not self.answers:
            raise KeyboardInterrupt
        answer = self.answers.pop(0)
        if answer is None:
            raise CoordinatorError("ZooKeeper is away")
        return answer

    def wait(self, ms: float) -> None: ...


def test_only_what_is_new_is_printed_and_a_loss_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Overview(MEMBERS[:1], ()), Overview(MEMBERS, ())
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    with pytest.raises(KeyboardInterrupt):
        watch(Scripted(one, one, other, None, None, other), Printer(ManualClock(), json=True))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [len(line.get("nodes", ())) for line in lines] == [1, 2, 0, 2]
    assert [line["zookeeper"] for line in lines] == [True, True, False, True]


# -- as a process ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_it_follows_the_workers_until_a_signal(
    nodes: Team, valkey: ServerUnderTest, store: Store, tmp_path: Path
) -> None:
    store.run(commands.layout(KEYS, QUEUES))
    one = nodes.join("one")
    settings = {"zookeeper": nodes.hosts, "zookeeper_root": nodes.root, "redis_url": valkey.url}
    command = [sys.executable, "-m", "coordinator", "--json"]
    overview = OneProcess("overview", command, settings, tmp_path / "said")
    overview.start()

    def last() -> dict[str, Any]:
        lines = overview.said().split("\n")[:-1]
        return dict(json.loads(lines[-1])) if lines else {}

    try:
        eventually(lambda: last().get("unowned") == [], "all queues are owned")
        assert last()["nodes"][0]["queues"] == list(ALL)
        one.coordinator.release(5, one.held.pop(5).epoch)
        eventually(lambda: last()["unowned"] == [5], "one has no owner")
        one.round()
        eventually(lambda: last().get("unowned") == [], "it is owned again")
        overview.signal(signal.SIGTERM)
        eventually(lambda: not overview.alive, "it has ended")
        assert overview.returncode == 0
        assert last().get("unowned") == [], "it says nothing at its end"
    finally:
        overview.kill()


@pytest.fixture
def own_signals() -> Iterator[None]:
    """What `main` does with signals ends with the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_once_prints_how_things_stand_and_ends(
    nodes: Team, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.join("one")
    monkeypatch.setenv("DELAYQ_ZOOKEEPER", nodes.hosts)
    monkeypatch.setenv("DELAYQ_ZOOKEEPER_ROOT", nodes.root)
    monkeypatch.setenv("DELAYQ_REDIS_URL", valkey.url)
    assert main(["--once"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[:3] for line in lines if line[0] == "one"] == [["one", "16", "0-15"]]


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("", "delayq coordinator: DELAYQ_ZOOKEEPER is not set"),
        ("127.0.0.1:1", "delayq coordinator: no ZooKeeper of 127.0.0.1:1 answered within 0.2 s"),
    ],
)
def test_without_a_zookeeper_it_says_what_to_do(
    hosts: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], valkey: ServerUnderTest
) -> None:
    monkeypatch.setenv("DELAYQ_ZOOKEEPER", hosts)
    monkeypatch.setenv("DELAYQ_SESSION_TIMEOUT", "200")
    monkeypatch.setenv("DELAYQ_REDIS_URL", valkey.url)
    assert main(["--once"]) == 2
    assert capsys.readouterr().err.startswith(said)
