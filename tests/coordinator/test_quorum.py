"""ZooKeeper loses its quorum at a bad moment: what a node owns it keeps, as nobody else could take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator import REDIS_AWAY, CoordinatorError
from coordinator.zookeeper.coordinator import REREAD, ZooKeeperCoordinator
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from testbed.zookeeper import ZooKeeperServer
from tests.coordinator.team import QUEUES, Player, Team, team
from tests.support.waiting import eventually
from tests.support.zookeeper import real_zookeeper

pytestmark = pytest.mark.long
ALL = frozenset(range(QUEUES))
LATER = int(REREAD * 1.1) + 1


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperServer]:
    with real_zookeeper(members=3) as running:
        yield running


@pytest.fixture
def nodes(ensemble: ZooKeeperServer, zookeeper_root: str, store: Store, clock: ManualClock) -> Iterator[Team]:
    """Nodes of an ensemble of three, all of whose servers run."""
    ensemble.start()
    eventually(lambda: ensemble.leader() is not None, "there is a leader")
    with team(ensemble.hosts, zookeeper_root, store, clock) as made:
        yield made


def connected(player: Player) -> bool:
    return player.coordinator.connected


def owns(store: Store, player: Player) -> bool:
    """Whether Redis lets it pull every queue that it holds."""
    return all(
        store.run(commands.pull(KEYS.queue(queue), epoch, offset=0, room=1)) is not None
        for queue, epoch in player.epochs.items()
    )


def lose_the_quorum(ensemble: ZooKeeperServer, *players: Player) -> None:
    """Two of three servers die, and these nodes have noticed."""
    ensemble.kill(0, 1)
    eventually(lambda: not any(connected(player) for player in players), "no node has a connection")


def go_round(player: Player) -> None:
    """A round of a node that may get a connection for a moment, to a server that has no quorum: then it goes round again."""

    def ends() -> bool:
        try:
            player.round()
        except CoordinatorError:
            return False
        return True

    eventually(ends, "a round comes to its end")


def back(ensemble: ZooKeeperServer, *players: Player) -> None:
    ensemble.start()
    eventually(lambda: all(connected(player) for player in players), "all nodes are back")


def exclude(nodes: Team, clock: ManualClock, player: Player) -> None:
    """It has worked out that others are to have its queues, but its round has not come yet."""
    player.coordinator.redis_reachable(False)
    clock.advance(REDIS_AWAY)
    player.coordinator.redis_reachable(False)
    eventually(lambda: not player.coordinator.assigned(), "it knows that it is left out")


def test_a_node_that_was_left_out_a_moment_before_keeps_its_queues_while_there_is_no_quorum(
    nodes: Team, ensemble: ZooKeeperServer, store: Store, clock: ManualClock
) -> None:
    """C4: A worker that had just been left out, or was about to hand queues over, keeps the queues that nobody could
    claim yet."""
    one, other = nodes.pair()
    before = one.epochs | other.epochs
    exclude(nodes, clock, one)
    lose_the_quorum(ensemble, one, other)
    for player in (one, other):
        player.coordinator.redis_reachable(True)
        clock.advance(LATER)
        go_round(player)
    assert one.epochs | other.epochs == before
    assert owns(store, one) and owns(store, other)
    back(ensemble, one, other)
    nodes.settle(one, other)
    assert one.epochs | other.epochs == before, "nothing has changed hands for it"


def test_a_queue_that_zookeeper_did_not_take_back_is_worked_on_under_its_epoch_until_it_can_be_handed_over(
    nodes: Team, ensemble: ZooKeeperServer, store: Store, clock: ManualClock
) -> None:
    one, other = nodes.pair()
    before = one.epochs
    exclude(nodes, clock, one)
    ensemble.kill(0, 1)  # not noticed yet
    one.drop()
    eventually(lambda: one.coordinator.assigned() >= before.keys(), "they are its own again")
    go_round(one)
    assert one.epochs == before
    assert owns(store, one)
    back(ensemble, one, other)
    nodes.until(lambda: other.queues == ALL, "the other one has all, now that it can take them")


def test_a_queue_that_was_given_back_and_that_nobody_could_claim_yet_is_its_last_owners_still(
    nodes: Team, ensemble: ZooKeeperServer, store: Store, clock: ManualClock
) -> None:
    one, other = nodes.join("one"), nodes.make("other")
    other.coordinator.start()
    before = one.epochs
    eventually(lambda: len(one.coordinator.assigned()) == QUEUES // 2, "it knows of the other one")
    one.drop()
    given_up = before.keys() - one.queues
    taken = min(given_up)
    assert other.coordinator.claim(taken) is not None
    lose_the_quorum(ensemble, one, other)
    go_round(one)
    assert one.queues == ALL - {taken}, "what the other one could claim is the other one's"
    assert before.items() >= one.epochs.items()
    assert owns(store, one)
    go_round(other)
    assert other.queues == {taken}
    back(ensemble, one, other)
    nodes.settle(one, other)


def test_a_queue_that_was_fenced_is_not_gone_on_with(
    nodes: Team, ensemble: ZooKeeperServer, store: Store, clock: ManualClock
) -> None:
    one = nodes.join("one")
    lose_the_quorum(ensemble, one)
    newer = {queue: f"{one.epochs[queue]}9" for queue in (3, 4)}
    for queue, epoch in newer.items():
        assert store.run(commands.claim(KEYS.queue(queue), epoch)).ok
    claim = one.held.pop(3)
    one.coordinator.fenced(3, claim.epoch)
    one.coordinator.release(3, claim.epoch)
    go_round(one)
    assert one.queues == ALL - {3}
    # And one of which the node has not heard yet that it is fenced.
    one.coordinator.release(4, one.held.pop(4).epoch)
    go_round(one)
    assert one.queues == ALL - {3, 4}
    back(ensemble, one)
    nodes.until(lambda: one.queues == ALL, "it has all again, under newer epochs")
    assert all(one.epochs[queue] > epoch for queue, epoch in newer.items())


def test_a_look_that_fails_ends_what_the_one_before_it_said(
    nodes: Team, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is there, and answers nothing."""
    one, other = nodes.pair()
    before = one.epochs
    exclude(nodes, clock, one)

    def fail(self: ZooKeeperCoordinator, session: Any) -> None:
        raise CoordinatorError("no answer")

    with monkeypatch.context() as away:
        away.setattr(ZooKeeperCoordinator, "_look", fail)
        one.coordinator.redis_reachable(True)
        eventually(lambda: one.coordinator.assigned() >= before.keys(), "what it holds is its own")
        one.round()
        assert one.epochs == before, "and nothing that the other one owns now"
    nodes.settle(one, other)


def test_what_a_node_is_told_of_a_queue_that_goes_is_why(nodes: Team, clock: ManualClock) -> None:
    one, other = nodes.pair()
    queue = min(one.queues)
    exclude(nodes, clock, one)
    assert one.coordinator.reason(queue) == "other is to have it: this node does not reach Redis"
    one.coordinator.share([0])
    assert one.coordinator.reason(15) == "the queue no longer exists"
    other.coordinator.stop()
    assert other.coordinator.reason(0) == "this node's session with ZooKeeper is over"
