"""Nodes that share the queues by a real ZooKeeper: who comes, who goes, and who takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import structlog

from coordinator import CoordinatorError, coordinator_for, epoch_text
from coordinator.zookeeper.coordinator import REREAD
from coordinator.zookeeper.node_entry import OwnEntry
from coordinator.zookeeper.session import LOOK_EVERY, Session, Watch, Znode
from delayq.base.clock import SystemClock
from delayq.base.errors import ConfigError, StoreUnavailable
from delayq.config import load_settings
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from testbed.zookeeper import ZooKeeperServer
from tests.coordinator.team import ERA, QUEUES, Player, Team, team
from tests.support.timeouts import PATIENCE, SESSION_TIMEOUT
from tests.support.waiting import eventually
from tests.support.zookeeper import CREATE, ZooKeeperProxy, client, end_session, real_zookeeper

ALL = frozenset(range(QUEUES))
LATER = int(REREAD * 1.1) + 1
SHORT = 1_000  # the shortest session that the server allows: who is not to get in is told so soon


def session_of(player: Player) -> Session:
    session = player.coordinator._session
    assert session is not None
    return session


def expire(team: Team, player: Player) -> None:
    """End a node's session as its expiry does, and wait until it has a new one."""
    before = session_of(player)._client.client_id

    def ended() -> bool:
        if session_of(player)._client.client_id == before:
            end_session(team.hosts, before)
        return session_of(player)._client.client_id not in (before, None)

    eventually(ended, "it has a new session")


def entry_of(team: Team, name: str) -> dict[str, object]:
    with client(team.hosts) as admin:
        data, _ = admin.get(f"{team.root}/nodes/{name}")
    answer: dict[str, object] = msgspec.json.decode(data)
    return answer


# -- who comes and who goes --------------------------------------------------------------------------------------------


def test_nodes_that_come_and_go_share_the_queues_evenly_and_nothing_else_moves(nodes: Team) -> None:
    one = nodes.join("one")
    assert one.queues == ALL
    other = nodes.join("other")
    nodes.settle(one, other)
    assert len(one.queues) == len(other.queues) == QUEUES // 2
    before = one.epochs | other.epochs
    third = nodes.join("third")
    nodes.settle(one, other, third)
    assert len(third.queues) == QUEUES // 3
    kept = one.epochs | other.epochs
    assert before.items() >= kept.items()
    third.coordinator.stop()
    nodes.settle(one, other)
    assert kept.items() <= (one.epochs | other.epochs).items()
    assert third.coordinator.assigned() == frozenset()


def test_a_node_that_is_cut_off_loses_its_queues_when_its_session_ends(
    nodes: Team, zookeeper_proxy: ZooKeeperProxy
) -> None:
    one, other = nodes.join("one"), nodes.join("other", zookeeper_proxy.hosts)
    nodes.settle(one, other)
    before = dict(other.epochs)
    zookeeper_proxy.refuse()
    end_session(nodes.hosts, zookeeper_proxy.client_id)
    nodes.until(lambda: one.queues == ALL, "the one that is left has all", one)
    assert other.coordinator.assigned() >= other.queues  # it cannot know; Redis tells it
    assert all(one.epochs[queue] > epoch for queue, epoch in before.items())
    zookeeper_proxy.heal()
    nodes.settle(one, other)


def test_a_queue_is_claimed_by_its_next_owner_as_soon_as_its_owner_releases_it_and_not_before(nodes: Team) -> None:
    one, other = nodes.join("one"), nodes.join("other")
    assert other.queues == set()  # the other one has not let go yet
    nodes.until(lambda: one.coordinator.assigned() != ALL, "the first node is told", other)
    for queue in sorted(ALL):
        assert other.coordinator.claim(queue) is None
        other.coordinator.release(queue, one.epochs[queue])
        assert other.coordinator.claim(queue) is None
    queue = min(one.queues - one.coordinator.assigned())
    one.coordinator.release(queue, one.held.pop(queue).epoch)
    nodes.until(lambda: other.queues == {queue}, "the newcomer has it", other)
    nodes.settle(one, other)


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_node_that_comes_back_under_its_name_waits_for_the_end_of_its_former_session(
    nodes: Team, zookeeper_proxy: ZooKeeperProxy
) -> None:
    former = nodes.join("one", zookeeper_proxy.hosts)
    zookeeper_proxy.refuse()
    again = nodes.join("one")
    assert again.coordinator.assigned() == frozenset()
    assert again.queues == set()
    end_session(nodes.hosts, zookeeper_proxy.client_id)
    nodes.until(lambda: again.queues == ALL, "the new one has all", again)
    assert all(again.epochs[queue] > epoch for queue, epoch in former.epochs.items())


def test_two_live_nodes_of_one_name_are_told_so_and_what_cannot_be_a_name_is_refused(
    nodes: Team, clock: ManualClock
) -> None:
    for name in ("", "a/b", ".", ".."):
        with pytest.raises(ConfigError, match="DELAYQ_NODE"):
            nodes.make(name)
    first = nodes.join("one")
    with structlog.testing.capture_logs() as logs:
        second = nodes.join("one")

        def said() -> list[object]:
            clock.advance(LATER)
            return [line for line in logs if line["event"] == "name_taken"]

        line = eventually(said, "it is said")[0]
    assert "DELAYQ_NODE" in str(line)
    assert second.coordinator.assigned() == frozenset()
    assert first.coordinator.assigned() == ALL


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_when_the_session_is_lost_what_was_held_is_dropped_before_it_is_claimed_anew(nodes: Team) -> None:
    one = nodes.join("one")
    before = one.epochs
    eventually(one.told.is_set, "the looks at the start are over")
    one.told.clear()
    expire(nodes, one)
    eventually(one.told.is_set, "the node is told")
    assert one.coordinator.assigned() == frozenset()
    assert one.coordinator.claim(0) is None
    one.coordinator.release(0, one.held.pop(0).epoch)
    eventually(lambda: one.coordinator.assigned() == {0}, "what was released is assigned anew")
    nodes.until(lambda: one.queues == ALL, "it has all again")
    assert all(one.epochs[queue] > before[queue] for queue in ALL)


def test_a_session_that_is_over_costs_no_queue_while_zookeeper_is_away(
    nodes: Team, store: Store, zookeeper_proxy: ZooKeeperProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1: If ZooKeeper is away again, the worker keeps the queues that nobody has claimed.

    It has heard that its session is over, and cannot register anew.
    """
    one = nodes.join("one", zookeeper_proxy.hosts)
    before = one.epochs

    def fail(self: OwnEntry, session: Any, changed: Any) -> bool:
        raise CoordinatorError("away")

    with monkeypatch.context() as away:
        away.setattr(OwnEntry, "register", fail)
        expire(nodes, one)
        eventually(lambda: not one.coordinator.assigned(), "it knows")
        zookeeper_proxy.refuse()
        eventually(lambda: not session_of(one).connected, "ZooKeeper is away")
        for queue, claim in list(one.held.items()):
            one.coordinator.release(queue, claim.epoch)
            del one.held[queue]
        one.round()
        assert one.epochs == before
        for queue, epoch in before.items():
            assert store.run(commands.pull(KEYS.queue(queue), epoch, offset=0, room=1)) is not None
    zookeeper_proxy.heal()
    nodes.until(lambda: one.queues == ALL and all(one.epochs[q] > before[q] for q in ALL), "it owns them anew")


def test_while_the_connection_is_away_nothing_changes(nodes: Team, zookeeper_proxy: ZooKeeperProxy) -> None:
    one = nodes.join("one", zookeeper_proxy.hosts)
    before = one.epochs
    with structlog.testing.capture_logs() as logs:
        zookeeper_proxy.refuse()
        eventually(lambda: any(line.get("state") == "suspended" for line in logs), "it is noticed")
        assert one.coordinator.assigned() == ALL
        again = one.coordinator.claim(0)
        assert again is not None
        assert again.epoch == before[0], "as nobody else can have claimed it"
        one.told.clear()
        zookeeper_proxy.heal()
        eventually(lambda: any(line.get("state") == "connected" for line in logs), "it is back")
    eventually(one.told.is_set, "the node is told")
    one.round()
    assert one.epochs == before


def test_a_create_whose_reply_was_lost_is_found_to_be_ours(nodes: Team, zookeeper_proxy: ZooKeeperProxy) -> None:
    """C13 (create() outcome unknown): If the znode's `ephemeralOwner` is its own session, the worker owns the queue
    under that epoch."""
    one = nodes.make("one", zookeeper_proxy.hosts)
    one.coordinator.start()
    eventually(one.told.is_set, "the first look is over")
    assert one.coordinator.claim(0) is not None
    zookeeper_proxy.drop_reply(CREATE, f"{nodes.root}/owners/3")
    with pytest.raises(CoordinatorError):
        one.coordinator.claim(3)
    assert zookeeper_proxy.dropped == 1
    with client(nodes.hosts) as admin:
        stat = admin.exists(f"{nodes.root}/owners/3")
    eventually(lambda: 3 in one.coordinator.assigned(), "ZooKeeper was read again")
    claim = one.coordinator.claim(3)
    assert claim is not None
    assert claim.epoch.startswith(f"{ERA:010d}.{stat.czxid:020d}.")


def test_a_release_that_could_not_be_told_is_done_later(nodes: Team, zookeeper_proxy: ZooKeeperProxy) -> None:
    one, other = nodes.join("one", zookeeper_proxy.hosts), nodes.join("other")
    nodes.until(lambda: one.coordinator.assigned() != ALL, "the first node knows of the other", other)
    zookeeper_proxy.refuse()
    eventually(lambda: not session_of(one).connected, "the connection is away")
    one.drop()
    zookeeper_proxy.heal()
    nodes.settle(one, other)


def test_start_raises_while_zookeeper_is_away_and_works_later(nodes: Team, zookeeper_proxy: ZooKeeperProxy) -> None:
    zookeeper_proxy.refuse()
    one = nodes.make("one", zookeeper_proxy.hosts, SHORT)
    with pytest.raises(CoordinatorError, match="DELAYQ_ZOOKEEPER"):
        one.coordinator.start()
    assert one.coordinator.assigned() == frozenset()
    with pytest.raises(CoordinatorError):
        one.coordinator.claim(0)
    one.coordinator.release(0, "")
    zookeeper_proxy.heal()
    one.coordinator._timeout = SESSION_TIMEOUT  # what must succeed may take longer than what must not
    one.start()
    assert one.queues == ALL


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is the fault
def test_a_client_whose_thread_died_is_replaced(
    nodes: Team, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = nodes.join("one")
    before, dead = one.epochs, session_of(one)
    client_id = dead._client.client_id

    def fail(*_: object) -> None:
        raise RuntimeError("an error that kazoo does not expect")

    monkeypatch.setattr(dead._client._connection, "_read_socket", fail)
    dead._client.exists_async("/")  # there is something to read
    eventually(lambda: not dead.connected, "the thread has died")
    end_session(nodes.hosts, client_id)

    def renewed() -> bool:
        clock.advance(LATER)
        return session_of(one) is not dead

    nodes.until(renewed, "there is a new client")
    nodes.until(lambda: one.queues == ALL and all(one.epochs[queue] > before[queue] for queue in ALL), "it owns all")


def test_what_the_node_does_when_it_is_told_cannot_end_the_coordinator(nodes: Team) -> None:
    one = nodes.make("one")

    def fail() -> None:
        one.told.set()
        raise RuntimeError("the node's own fault")

    one.coordinator.watch(fail)
    with structlog.testing.capture_logs():
        one.coordinator.start()
        eventually(one.told.is_set, "it was told")
        one.told.clear()
        other = nodes.join("other")
        eventually(one.told.is_set, "it is told again")
        eventually(lambda: len(one.coordinator.assigned()) == QUEUES // 2, "it goes on looking")
    assert one.coordinator.assigned() | other.coordinator.assigned() == ALL


# -- Redis -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def wiped(nodes: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ZooKeeper was wiped: its transactions count from 1 again."""
    nodes.join("formerly").coordinator.stop()
    monkeypatch.setattr(
        "coordinator.zookeeper.owner_znodes.epoch_text", lambda era, number, owner: epoch_text(era, 1, owner)
    )


def test_epochs_below_what_redis_has_are_refused_in_one_sentence_until_the_era_is_bumped(
    nodes: Team, clock: ManualClock, wiped: None
) -> None:
    with structlog.testing.capture_logs() as logs:
        one = nodes.join("one")
        assert one.queues == set()
        assert one.coordinator.assigned() == frozenset()
        clock.advance(999)
        assert one.coordinator.assigned() == frozenset()
        clock.advance(1)
        assert one.coordinator.assigned() == ALL
        one.round()
        clock.advance(1_999)
        assert one.coordinator.assigned() == frozenset()
    said = [line for line in logs if "era bump" in str(line)]
    assert len(said) == 1
    nodes.era += 1
    clock.advance(1)
    one.round()
    assert one.queues == ALL
    assert all(epoch.startswith(f"{ERA + 1:010d}.{1:020d}.") for epoch in one.epochs.values())


def test_holds_grow_up_to_a_quarter_of_a_minute(nodes: Team, clock: ManualClock, wiped: None) -> None:
    one = nodes.make("one")
    one.coordinator.start()
    holds = []
    for _ in range(7):
        assert one.coordinator.claim(5) is None
        before = clock.monotonic()
        while 5 not in one.coordinator.assigned():
            clock.advance(250)
        holds.append(clock.monotonic() - before)
    assert holds == [1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000]


def test_a_node_that_lost_redis_leaves_its_queues_to_one_that_reaches_it_and_nothing_moves_when_none_does(
    nodes: Team, clock: ManualClock
) -> None:
    one, other = nodes.pair()

    def without_redis(state: str, players: dict[str, Player]) -> None:
        for player in players.values():
            player.coordinator.redis_reachable(False)
        nodes.until(lambda: all(entry_of(nodes, name)["redis"] == state for name in players), "the others can see it")

    def lose_redis(**players: Player) -> None:
        without_redis("trouble", players)
        assert nodes.settled(one, other)
        clock.advance(5_000)
        without_redis("lost", players)

    lose_redis(one=one)
    nodes.until(lambda: other.queues == ALL, "the other one has all")
    assert one.queues == set()
    one.coordinator.redis_reachable(True)
    nodes.settle(one, other)
    before = one.epochs | other.epochs
    lose_redis(one=one, other=other)
    for _ in range(2):
        clock.wait_for_waiters(2, PATIENCE)
        clock.advance(LATER)
    clock.wait_for_waiters(2, PATIENCE)
    one.round()
    other.round()
    assert one.epochs | other.epochs == before


# -- what was missed ---------------------------------------------------------------------------------------------------


def test_a_watch_that_was_missed_is_made_up_for_by_reading_again(
    nodes: Team, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    wait = clock.wait

    def note(condition: threading.Condition, ms: float) -> bool:
        waits.append(ms)
        return wait(condition, ms)

    monkeypatch.setattr(clock, "wait", note)
    monkeypatch.setattr("coordinator.zookeeper.coordinator.ZooKeeperCoordinator._node_changed", lambda *_: None)
    one = nodes.join("one")
    eventually(one.told.is_set, "its own looks at the start are over")
    other = nodes.join("other")
    assert len(other.coordinator.assigned()) == QUEUES // 2
    assert one.coordinator.assigned() == ALL
    clock.wait_for_waiters(2, PATIENCE)
    clock.advance(LATER)
    nodes.settle(one, other)
    assert max(waits) <= LATER, "the manual clock wakes whoever waits, a real one only after this time"


def test_an_owner_znode_that_somebody_removed_is_made_anew(nodes: Team, clock: ManualClock) -> None:
    one = nodes.join("one")
    before = one.epochs
    eventually(one.told.is_set, "the looks at the start are over")
    with client(nodes.hosts) as admin:
        admin.delete(f"{nodes.root}/nodes/one")  # its entry, too
        eventually(lambda: admin.exists(f"{nodes.root}/nodes/one"), "it is there again")
        assert one.coordinator.assigned() == ALL
        admin.delete(f"{nodes.root}/owners/7")
    clock.wait_for_waiters(1, PATIENCE)
    clock.advance(LATER)
    nodes.until(lambda: one.epochs.get(7, "") > before[7], "queue 7 has a greater epoch")
    del before[7]
    assert before.items() <= one.epochs.items()


def test_a_claim_that_redis_did_not_answer_is_let_go_when_the_queue_is_anothers(
    nodes: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = nodes.make("one")
    one.coordinator.start()

    def fail(*_: object) -> None:
        raise StoreUnavailable("no reply")

    with monkeypatch.context() as away:
        away.setattr(nodes.store, "run", fail)
        for queue in sorted(ALL):
            with pytest.raises(StoreUnavailable):
                one.coordinator.claim(queue)
    other = nodes.join("other")
    nodes.until(lambda: len(other.queues) == QUEUES // 2, "the other one has its share", other)
    one.round()
    assert nodes.settled(one, other)


@pytest.mark.long
def test_after_zookeeper_lost_its_data_its_nodes_come_back_and_an_era_bump_lets_them_own(
    store: Store, clock: ManualClock
) -> None:
    """C7 (ZK data wiped): Lower epochs are refused until `delayq era bump`, which the worker requests once.

    Nothing is lost.
    """
    with real_zookeeper() as server, team(server.hosts, "/delayq", store, clock) as own:
        with client(server.hosts) as admin:
            for _ in range(100):  # so that its transactions have higher numbers than those after
                admin.create("/counted", ephemeral=True, sequence=True)
        one = own.join("one")
        before = one.epochs
        server.wipe()
        server.start()
        with structlog.testing.capture_logs() as logs:
            other = own.join("other")  # knows nothing of before
        assert other.queues == set()
        assert len([line for line in logs if "era bump" in str(line)]) == 1
        own.era += 1

        def settled() -> bool:
            clock.advance(LATER)
            for player in (one, other):
                with suppress(CoordinatorError):
                    player.round()
            return own.settled(one, other)

        own.until(settled, "both own their share")
        assert all((one.epochs | other.epochs)[queue] > before[queue] for queue in ALL)


# -- flapping ----------------------------------------------------------------------------------------------------------


def test_a_node_that_comes_and_goes_is_left_out_for_a_minute(nodes: Team, clock: ManualClock) -> None:
    """C11 (a node flaps (crash loop every 5 s)): Three kills or lost sessions in a minute: no queues for a minute,
    unless all flap.

    C11: The minute is one of its own clock.
    """
    one, other = nodes.pair()
    for _ in range(3):
        expire(nodes, other)
    nodes.until(lambda: one.queues == ALL and not other.queues, "the steady one has all")
    assert entry_of(nodes, "other")["hold_until"] == clock.now() + 60_000
    clock.wait_for_waiters(2, PATIENCE)
    clock.advance(60_000)
    nodes.settle(one, other)


def test_starts_that_two_nodes_count_at_once_are_both_counted(
    nodes: Team, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one writes between the first one's read and its write."""
    real = Session.read
    raced: list[Player] = []

    def read(self: Session, paths: Iterable[str], watch: Watch | None = None) -> dict[str, Znode]:
        asked = list(paths)
        found = real(self, asked, watch)
        if asked == [f"{nodes.root}/starts"] and not raced:
            raced.append(nodes.make("other"))
            raced[0].start()
        return found

    monkeypatch.setattr(Session, "read", read)
    nodes.join("one")
    with client(nodes.hosts) as admin:
        data, _ = admin.get(f"{nodes.root}/starts")
    assert msgspec.json.decode(data) == {"one": [clock.now()], "other": [clock.now()]}


# -- the real clock ----------------------------------------------------------------------------------------------------


def test_with_the_real_clock_nodes_come_and_go_too(nodes: Team, store: Store) -> None:
    with team(nodes.hosts, f"{nodes.root}/real", store, SystemClock()) as real:
        one, other = real.join("one"), real.join("other")
        real.settle(one, other)
        other.coordinator.stop()
        real.until(lambda: one.queues == ALL, "the one that is left has all", one)


def test_a_chroot_of_several_levels_that_is_missing_is_created(
    zookeeper: ZooKeeperServer, zookeeper_root: str, store: Store
) -> None:
    chroot = f"{zookeeper_root}/shop/queues"
    settings = load_settings(
        zookeeper=f"{zookeeper.hosts}{chroot}", zookeeper_root="/mine", node="one", session_timeout=SESSION_TIMEOUT
    )
    coordinator = coordinator_for(settings, store, store.run(commands.layout(KEYS, QUEUES)), SystemClock())
    coordinator.start()
    try:
        with client(zookeeper.hosts) as admin:
            assert admin.get_children(f"{chroot}/mine/nodes") == ["one"]
    finally:
        coordinator.stop()


def test_a_signal_just_before_the_wait_for_a_connection_is_handled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python handles such a signal only after the wait, so no single wait is long."""
    waits: list[float] = []

    class Never:
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return False

    session = Session("127.0.0.1:1", 60_000, lambda *_: None)
    monkeypatch.setattr(session._client, "start_async", Never)
    with pytest.raises(CoordinatorError, match="answered within 60 s"):
        session.open()
    assert max(waits) <= LOOK_EVERY
    assert sum(waits) == pytest.approx(60)
