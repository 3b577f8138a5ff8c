"""A worker that keeps its queue loses no message for good, whatever goes wrong: nothing restarts it and nobody claims anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from delayq.store.commands import Now, Parked
from delayq.targets import OK
from reliability.mutants.rules import Mutant, plant
from tests.support.amounts import amount
from tests.support.servers import ServerUnderTest
from tests.workers.living import live
from workers.queue.cursor import Cursor
from workers.queue.in_flight import InFlight
from workers.queue.ordering import Lanes
from workers.queue.parked_sets import ParkedSets
from workers.queue.queue_context import QueueContext
from workers.queue.settlement import Settlement, Step
from workers.sending.message import InFlightMessage, Stage

#: Options of `live` for each kind of life.
LIVES: dict[str, dict[str, bool]] = {
    "streams": {"streams": True},
    "slots": {"slots": True},
    "limits": {"limits": True},
    "by-hand": {"by_hand": True},
    "limits-and-streams": {"limits": True, "streams": True},
    "by-hand-and-streams": {"by_hand": True, "streams": True},
    "by-hand-and-limits": {"by_hand": True, "limits": True},
    "backlog": {"backlog": True},
    "backlog-and-limits": {"backlog": True, "limits": True},
}


@pytest.mark.parametrize("seed", range(amount(15, 200)))
def test_everything_ends_and_in_order_with_one_owner_that_lives_on(valkey: ServerUnderTest, seed: int) -> None:
    """A23, C19, E16: After Redis went back in time the owner finds its messages in the queue and in parked sets
    without a new claim, and every message ends.

    Messages delivered since may repeat. Messages that Redis itself put elsewhere may be out of order. Nothing
    overtakes within an ordering key while replies are lost or Redis stops.
    """
    live(valkey.url, seed)


@pytest.mark.parametrize("seed", range(amount(4, 60)))
@pytest.mark.parametrize("kind", LIVES)
def test_everything_ends_and_in_order_in_each_kind_of_life(valkey: ServerUnderTest, kind: str, seed: int) -> None:
    live(valkey.url, seed, **LIVES[kind])


# -- rules taken out -----------------------------------------------------------------------------------------------------

_reset = InFlight.reset


def _forget_parked_sets(self: InFlight) -> None:
    self.parked._sets.clear()
    _reset(self)


def _believe_the_answer_alone(self: InFlight, sets: Mapping[str, Parked]) -> None:
    for name, parked in sets.items():
        self.parked.describe(name, parked)


def _forget_lanes(self: InFlight, message: InFlightMessage) -> None:
    self._forget(message)
    self.rewind(message.score)


def _stay_before_what_was_dropped(self: InFlight, message: InFlightMessage) -> None:
    for one in self._lanes.clear_from(message):
        self._forget(one)


def _leave_weight_counted(self: InFlight, message: InFlightMessage) -> None:
    self._messages.pop(message.ticket, None)


_move = InFlight._move


def _keep_the_room(self: InFlight, batch: Sequence[InFlightMessage], to: Stage) -> None:
    _move(self, batch, to)
    if to is Stage.RETURNED and batch:
        self._share_of(batch[0]).sending += sum(message.weight for message in batch)


def _take_for_sent(self: InFlight, batch: Sequence[InFlightMessage]) -> None:
    self.sent(batch, [OK] * len(batch), 0)


def _hear_nobody_behind(self: Lanes, message: InFlightMessage) -> list[InFlightMessage]:
    self.leave(message)
    return [message]


_steps = Settlement.steps


def _tell_once(self: Settlement, context: QueueContext, now: Now) -> list[Step]:
    steps = _steps(self, context, now)
    for unsent in self._unsent.values():
        unsent.clear()
    return steps


def _let_nobody_follow(self: InFlight, message: InFlightMessage, now: int) -> None:
    self._lanes.leave(message)


def _leave_what_waits(self: InFlight) -> None:
    self._settlement.keep_acks_only()
    self._lanes.clear()
    for message in list(self._messages.values()):
        if message.stage not in (Stage.WAITING, Stage.SENDING, Stage.ACKING):
            self._drop(message)
        elif message.record.keyed:
            self._lanes.enter(message)
    self.rewind(0)


#: What is replaced by what; and seeds that show it.
MUTANTS: dict[str, tuple[type, str, Callable[..., object], tuple[int, ...]]] = {
    "a reset that forgets what was parked": (InFlight, "reset", _forget_parked_sets, (1, 3, 6)),
    "parked sets that are never found again": (
        ParkedSets,
        "read",
        lambda self, names, now, *, every, pending=(): None,
        (3, 4, 23),
    ),
    "a set that is known by its answer alone": (InFlight, "_describe", _believe_the_answer_alone, (0, 1, 3)),
    "parking without a note": (ParkedSets, "expect", lambda self, name, place: None, (0, 1, 2)),
    "a message that is dropped and stays in its lane": (InFlight, "_drop", _forget_lanes, (0, 1, 2)),
    "an offset that passes what was dropped": (InFlight, "_drop", _stay_before_what_was_dropped, (4, 6, 10)),
    "weight that stays counted": (InFlight, "_forget", _leave_weight_counted, (0, 1, 2)),
    "an ack for what was not sent": (InFlight, "not_sent", _take_for_sent, (5, 4, 6)),
    "parking without those behind it": (Lanes, "clear_from", _hear_nobody_behind, (1, 2, 3)),
    "reporting to Redis once, with or without an answer": (Settlement, "steps", _tell_once, (0, 1, 2)),
    "a share that never gets its room back": (InFlight, "_move", _keep_the_room, (0, 1, 2)),
    "a key of which nobody follows": (InFlight, "_leave_lane", _let_nobody_follow, (0, 1, 2)),
    "a reset that keeps what waits for room": (InFlight, "reset", _leave_what_waits, (1, 8, 9)),
    "sending what has waited, whoever cancelled it": (InFlightMessage, "stale", lambda self, now: False, (22, 25, 41)),
    "sending what waits though it was paused": (
        InFlight,
        "observe_policies",
        lambda self, policies: setattr(self, "_policies", policies),
        (2, 18, 8),
    ),
}


#: What breaks the order while a backlog drains; and seeds that show it, of which the tests of lives above try the first.
BACKLOG_MUTANTS: dict[str, tuple[type, str, Callable[..., object], tuple[int, ...]]] = {
    "a release that passes what its own tick has dropped": (
        Cursor,
        "has_read",
        lambda self, due: not self.unread,
        (2, 3, 10),
    ),
}


#: What is taken out of a script; and seeds that show it.
SCRIPT_MUTANTS = (
    (
        Mutant(
            "a pull that hands out what its queue pauses",
            (("pull", "return mark_of ~= nil and mark_of(topic) < math.huge", "return false"),),
        ),
        (2, 4),
    ),
)


#: What keeps messages in order that go through the set of their topic; and seeds that show it.
HELD_MUTANTS = (
    (
        Mutant(
            "a pull that hands out what comes behind the set of its topic",
            (
                (
                    "pull",
                    "is_paused(topic) or some_held and redis.call('HEXISTS', state, 'parked:h:' .. topic) == 1",
                    "is_paused(topic)",
                ),
            ),
        ),
        (0, 2, 3),
    ),
)


def _live_all(url: str, seeds: tuple[int, ...], **options: bool) -> None:
    """These lives, and before a release others, too."""
    for seed in (*seeds, *range(amount(0, 200))):
        live(url, seed, **options)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_random_life_fails_without_a_rule(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    where, name, instead, seeds = MUTANTS[mutant]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        _live_all(valkey.url, seeds)


@pytest.mark.parametrize("mutant", BACKLOG_MUTANTS)
def test_a_random_life_with_a_backlog_fails_without_a_rule(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    where, name, instead, seeds = BACKLOG_MUTANTS[mutant]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError, match="overtakes"):
        _live_all(valkey.url, seeds, backlog=True)


@pytest.mark.parametrize("mutant", SCRIPT_MUTANTS, ids=lambda one: one[0].name)
def test_the_random_life_fails_without_a_rule_of_a_script(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, mutant: tuple[Mutant, tuple[int, ...]]
) -> None:
    plant(mutant[0], monkeypatch)
    with pytest.raises(AssertionError):
        _live_all(valkey.url, mutant[1])


@pytest.mark.parametrize("mutant", HELD_MUTANTS, ids=lambda one: one[0].name)
def test_a_random_life_with_streams_fails_without_a_rule_of_a_script(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, mutant: tuple[Mutant, tuple[int, ...]]
) -> None:
    plant(mutant[0], monkeypatch)

    def live_with_streams_and_without() -> None:
        for streams in (False, True):
            _live_all(valkey.url, mutant[1], streams=streams)

    with pytest.raises(AssertionError, match="overtakes"):
        live_with_streams_and_without()
