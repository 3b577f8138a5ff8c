"""Policies: a node reads them, its pull jobs bring them to queues that lag, and none pulls by others than its queue has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delayq.domain.policies import NO_POLICIES, Policies
from delayq.domain.routes import Routes
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.targets import OK, Result
from tests.workers.one_queue import TABLE, OneQueue
from workers.node.duties.policies import PolicyWatch
from workers.queue.pull_job import OUTDATED_WAIT
from workers.queue.queue_context import CurrentPolicies
from workers.queue.symptoms import LossDetector

PAUSE = Change("pause:other.*", '{"reason":"down","until":9000}')


def put(store: Store, *changes: Change, beyond: str = "") -> Policies:
    """Change them; as a node reads them then."""
    store.run(commands.set_policies(KEYS, changes, maker="0000000007", beyond=beyond, now=1_000))
    return read(store)


def read(store: Store) -> Policies:
    return Policies.read(store.run(commands.policies(KEYS)))


# -- a pull job ----------------------------------------------------------------------------------------------------------


def test_what_a_dead_caller_has_set_is_brought_to_the_queue_in_front_of_the_next_pull(world: OneQueue) -> None:
    """I3: The caller has no answer, or 503, whether no queue or some queues had the pause.

    From the moment when workers applied it nothing is handed out.
    """
    hand = world.take_over()
    hand.policies.current = put(world.store, PAUSE)
    for id in ("a", "b"):
        world.add(id)
        hand.settle()
        assert hand.sending[-1] == id
        assert world.field("policies") == hand.job.version == "0000000001.0000000007"
        assert world.field("paused") == f"{world.now} other.*"
        world.store.run(commands.plain("HDEL", world.keys.state, "policies", "paused", read=int))


def test_nothing_is_pulled_by_policies_that_the_node_has_not_read(world: OneQueue) -> None:
    hand = world.take_over()
    world.add("a")
    later = put(world.store, PAUSE)
    world.store.run(commands.apply_policies(world.keys, later.version, later.paused))
    for _ in range(3):
        hand.tick()
        assert (hand.sending, hand.policies.ahead) == ([], later.version)
        assert hand.pause == OUTDATED_WAIT, "nobody asks again and again"
    hand.policies.current = later
    hand.settle()
    assert hand.sending == ["a"]


def test_an_owner_brings_no_policies_that_were_lost_to_a_queue_that_has_others(world: OneQueue) -> None:
    """Redis has lost two changes that the owner has read, and a pause was made and answered since."""
    hand = world.take_over()
    world.add("a")
    lost = put(world.store, Change("policy:sms", '{"match":"sms.*","maxAttempts":3}'), beyond="0000000008.0000000007")
    world.store.run(commands.plain("DEL", KEYS.policies, read=int))
    stand = put(world.store, Change("pause:g.*", "{}"))
    world.store.run(commands.apply_policies(world.keys, stand.version, stand.paused))
    hand.policies.current = lost
    for _ in range(3):
        hand.tick()
        assert (hand.sending, hand.policies.ahead, world.field("policies")) == ([], stand.version, stand.version)
    hand.policies.current = stand
    hand.settle()
    assert hand.sending == []


def test_an_owner_that_has_read_the_policies_again_brings_them_to_a_queue_that_lags(world: OneQueue) -> None:
    hand = world.take_over()
    world.add("a")
    world.store.run(commands.apply_policies(world.keys, put(world.store, PAUSE).version, ()))
    hand.policies.current = put(world.store, Change("policy:sms", '{"match":"sms.*","maxAttempts":3}'))
    hand.tick()
    assert hand.policies.ahead
    hand.tick()
    assert hand.sending == []
    hand.policies.current = read(world.store)
    hand.settle()
    assert hand.sending == ["a"]
    assert world.field("policies") == hand.job.version


# -- a node --------------------------------------------------------------------------------------------------------------


class Watched:
    def __init__(self, store: Store) -> None:
        self.store, self.policies, self.losses = store, CurrentPolicies(), LossDetector()
        self.changes = 0
        self.now = 0
        self.watch = self.watch_of(store)

    def watch_of(self, store: Store) -> PolicyWatch:
        return PolicyWatch(store, [0, 1], self.policies, self.losses, lambda: self.now, Routes(TABLE), self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def glance(self, now: int = 0) -> None:
        self.watch.observe(self.store.run(commands.glance(KEYS)).policies)
        self.look(now)

    def look(self, now: int = 0) -> None:
        """Look, if there are news."""
        self.now = now
        if self.watch.has_news():
            self.watch.look()


@pytest.fixture
def node(world: OneQueue) -> Watched:
    return Watched(world.store)


def test_a_node_reads_them_when_a_glance_or_a_queue_tells_another_version(node: Watched) -> None:
    node.glance()
    assert (node.policies.current, node.changes) == (NO_POLICIES, 0)
    put(node.store, PAUSE)
    node.glance()
    node.glance()
    assert (node.policies.current.number, node.changes) == (1, 1)
    latest = put(node.store, Change("policy:sms", '{"match":"sms.*","maxAttempts":3}'))
    node.policies.report_version(latest.version)
    node.look()
    assert (node.policies.current.number, node.changes, node.policies.ahead) == (2, 2, "")
    policy = node.policies.current.policy("sms.de")
    assert policy is not None
    assert (policy.name, policy.max_attempts) == ("sms", 3)
    known = node.policies.current
    node.policies.report_version("0000000001.0000000007")
    node.look()
    assert node.policies.current is not known, (
        "they were read again, so they were not lost: a queue that lags may get them"
    )


def test_a_pause_ends_when_its_time_has_passed_unless_it_is_another_one_by_then(node: Watched) -> None:
    put(node.store, PAUSE)
    node.glance(8_999)
    node.look(8_999)
    assert node.policies.current.pause("other.t") is not None
    put(node.store, Change(PAUSE.field, '{"reason":"still down"}'))
    node.look(9_000)
    assert read(node.store).pauses["other.*"].reason == "still down"
    put(node.store, PAUSE)
    node.glance(9_000)
    away = Store("redis://127.0.0.1:1/0", timeout=0.1)
    node.watch_of(away).look()
    assert node.policies.current.paused == ("other.*",), "it cannot be ended yet, and the node goes on"
    away.close()
    node.look(9_000)
    assert not node.policies.current.pauses and not read(node.store).pauses


@pytest.fixture
def limits(world: OneQueue) -> Callable[[], list[str]]:
    """What has a limit after the next look of a node whose queue it is."""
    node = Watched(world.store)

    def look() -> list[str]:
        node.watch.observe(node.store.run(commands.glance(KEYS)).policies)
        node.watch.look()
        return sorted(read(node.store).limits)

    return look


def test_a_limit_ends_when_no_queue_holds_anything_of_it(world: OneQueue, limits: Callable[[], list[str]]) -> None:
    hand = world.take_over()
    world.pause("g.*")
    world.add("a")
    hand.settle()
    world.change(Change("pause:g.*", ""), Change("limit:g.*", '{"rate":1}'), Change("limit:o.*", '{"rate":1}'))
    world.add("later", topic="o.t", at=60_000)
    assert limits() == ["g.*", "o.*"]
    assert limits() == ["g.*"]
    hand.settle()
    hand.settle()  # it reads the names of all parked sets
    hand.limits.tick()
    assert limits() == ["g.*"], "it is on its way"
    hand.answer("a")
    hand.settle()
    assert limits() == []
    assert hand.sent == ["a"]


def test_a_limit_lasts_while_what_was_paused_was_not_pulled_yet(
    world: OneQueue, limits: Callable[[], list[str]]
) -> None:
    world.add("a")
    world.change(Change("limit:g.*", '{"rate":1}'))
    assert [limits() for _ in range(3)] == [["g.*"]] * 3, "there is no worker"
    world.cancel("a")
    assert limits() == []


@pytest.mark.parametrize("since", ["before", "after"])
def test_a_limit_lasts_while_what_came_before_it_and_no_longer_what_came_after_it_is_parked_for_its_target(
    world: OneQueue, limits: Callable[[], list[str]], since: str
) -> None:
    hand = world.take_over()
    limit = commands.set_policies(KEYS, [Change("limit:g.*", '{"rate":1}')], maker="0000000007", now=world.now)
    if since == "after":
        world.store.run(limit)
    world.add_many((f"{n}" for n in range(4)), at=5)
    hand.run(2_000, lambda held: Result.unavailable("down"))
    assert world.aside() == {"t:general": 4}
    if since == "before":
        world.change(Change("limit:g.*", '{"rate":1}'))
    assert limits() == ["g.*"], "it was read just now"
    assert [limits() for _ in range(3)] == [["g.*"] if since == "before" else []] * 3
    hand.run_until(world.elapsed + 40_000, lambda held: OK)
    assert world.records() == {}
    assert limits() == []


def test_policies_that_went_back_are_taken_as_they_are_and_say_so(node: Watched) -> None:
    """I5: On one server the queues lose the pause, too."""
    put(node.store, PAUSE, beyond="0000000005.0000000007")
    node.glance()
    node.store.run(commands.plain("DEL", KEYS.policies, read=int))
    node.glance()
    assert (node.policies.current.number, node.losses.went_back) == (7, 1), (
        "nobody sees a number again with other policies"
    )
    assert not node.policies.current.paused
    node.policies.report_version("0000000009.0000000003")  # a queue has newer ones: the node's are raised above them
    node.look()
    assert (node.policies.current.number, node.losses.went_back) == (10, 2)


def test_a_pause_that_cannot_be_read_is_one_all_the_same() -> None:
    policies = Policies.read({"version": "x", "pause:a.*": "7 {", "policy:p": "7 {", "pause:b": "5 {}", "other": "1 x"})
    assert policies.paused == ("a.*", "b")
    assert policies.pause("a.x") == policies.pauses["a.*"]
    assert policies.policies == {}
