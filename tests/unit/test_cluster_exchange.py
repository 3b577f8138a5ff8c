"""What becomes of commands in a cluster, without a cluster: replies and errors are handed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis

from delayq.base.errors import NotDone, NotDurable, StoreError, StoreUnavailable
from delayq.store import commands, scripts
from delayq.store.commands import Command, every, plain
from delayq.store.connect.cluster_exchange import PAUSES, ClusterExchange, SlotMap, slot_of
from delayq.store.connect.durability import Durability
from delayq.store.connect.link import Link, Sent
from delayq.store.connect.server_state import ServerState, read_error
from delayq.store.keys import KEYS

A, B = ("a", 1), ("b", 2)
HALF = 8_191


def slots() -> SlotMap:
    """Two primaries, half of the slots each."""
    made = SlotMap([("seed", 0)])
    made.take([[0, HALF, [b"a", 1, b"id"]], [HALF + 1, 16_383, [b"b", 2, b"id"], [b"c", 3, b"id"]]], A)
    return made


def key_on(node: tuple[str, int]) -> str:
    return next(key for key in (f"k{number}" for number in range(99)) if (slot_of(key) > HALF) == (node == B))


def get(key: str) -> Command[bytes]:
    return plain("GET", key, read=lambda reply: reply)


class Wire:
    """Sends a exchange's commands nowhere: `sent` are those of the last round, by node."""

    def __init__(self, wanted: Sequence[Command[Any]], durability: Durability | None = None) -> None:
        self.slots = slots()
        self.exchange = ClusterExchange(wanted, self.slots, durability)
        self.durability = durability
        self.sent: list[tuple[tuple[str, int], Sent]] = []

    def round(self, *unreachable: tuple[str, int]) -> list[tuple[tuple[str, int], int]]:
        self.sent = []
        for node, sent in self.exchange.to_send():
            if node in unreachable:
                self.exchange.unreachable(node, sent, redis.exceptions.ConnectionError("refused"))
                continue
            self.sent.append((node, sent))
            self.link(node).again(sent)
        return [(node, place) for node, (place, *_) in self.sent]

    def link(self, node: tuple[str, int]) -> Link:
        return self.exchange.links.setdefault(node, Link(None, ServerState(2), self.durability, node))

    def reply(self, node: tuple[str, int], reply: Any) -> bytes | None:
        return self.exchange.answered(self.link(node), reply)


def test_the_slot_of_a_key_is_that_of_its_hash_tag() -> None:
    assert [slot_of("123456789"), slot_of("foo"), slot_of("{foo}bar"), slot_of("x{foo}y")] == [
        12739,
        12182,
        12182,
        12182,
    ]
    assert slot_of("{}foo") == slot_of("{}foo") != slot_of("foo")
    assert len({slot_of(key) for key in (KEYS.queue(3).pool, KEYS.queue(3).state, KEYS.queue(3).stream("t"))}) == 1


def test_commands_go_to_their_primaries_and_answers_stand_in_order() -> None:
    wire = Wire([get(key_on(B)), get(key_on(A)), get(key_on(B))])
    assert wire.round() == [(B, 0), (A, 1), (B, 2)]
    wire.reply(A, b"two")
    wire.reply(B, b"one")
    wire.reply(B, redis.exceptions.ResponseError("ERR broken"))
    first, second, third = wire.exchange.result()
    assert (first, second, str(third)) == (b"one", b"two", "ERR broken")
    assert not wire.exchange.waiting


SLOT = slot_of(key_on(A))


@pytest.mark.parametrize(
    ("error", "node", "remembered", "asking"),
    [
        (redis.exceptions.MovedError(f"{SLOT} b:2"), B, B, False),
        (redis.exceptions.MovedError(f"{SLOT} :9"), ("a", 9), ("a", 9), False),  # without a host: the server itself
        (redis.exceptions.AskError(f"{SLOT} b:2"), B, A, True),
    ],
    ids=["moved", "moved within a host", "asked once"],
)
def test_a_slot_that_is_elsewhere_is_followed_and_remembered_once_it_has_moved(
    error: Exception, node: tuple[str, int], remembered: tuple[str, int], asking: bool
) -> None:
    wire = Wire([get(key_on(A))])
    wire.round()
    wire.reply(A, error)
    assert (wire.exchange.waiting, wire.exchange.stale, wire.exchange.next_round()) == (True, not asking, 0.0)
    assert wire.round() == [(node, 0)]
    assert wire.sent[0][1][3] is asking
    assert wire.slots.node_of(key_on(A)) == remembered
    for reply in [b"OK"] * asking + [b"there"]:
        wire.reply(node, reply)
    assert wire.exchange.result() == [b"there"]


@pytest.mark.parametrize(
    ("error", "stale"),
    [
        (redis.exceptions.TryAgainError("Multiple keys request during rehashing of slot"), False),
        (redis.exceptions.ClusterDownError("Hash slot not served"), True),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), True),
        (read_error("NOREPLICAS Not enough good replicas to write."), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_done_now_is_tried_again_for_a_bounded_time(
    error: redis.exceptions.ResponseError, stale: bool
) -> None:
    wire = Wire([get(key_on(A))])
    pauses = []
    wire.round()
    wire.reply(A, error)
    while (pause := wire.exchange.next_round()) is not None:
        pauses.append(pause)
        wire.round()
        wire.reply(A, error)
    assert (pauses, wire.exchange.stale) == (list(PAUSES), stale)
    (answer,) = wire.exchange.result()
    assert isinstance(answer, StoreUnavailable)


def test_a_lost_script_is_sent_whole_at_once() -> None:
    command = commands.stats(KEYS.queue(3))
    wire = Wire([command])
    wire.round()
    ((node, _),) = wire.sent
    wire.link(node).state.loaded.add("stats")
    again = wire.reply(node, redis.exceptions.NoScriptError("No matching script."))
    assert again is not None
    assert scripts.load("stats").text.encode() in again


def test_a_server_that_is_not_there_holds_up_nobody_else() -> None:
    wire = Wire([get(key_on(A)), get(key_on(B)), get(key_on(A))])
    assert wire.round(A) == [(B, 1)]
    assert wire.exchange.down.keys() == {A}
    wire.reply(B, b"fine")
    assert wire.exchange.next_round() == PAUSES[0]
    assert wire.round() == [(A, 0), (A, 2)]


def test_what_was_not_answered_on_a_broken_connection_is_sent_once_more_and_then_unknown() -> None:
    wire = Wire([get(key_on(A)), get(key_on(B))])
    wire.round()
    wire.reply(B, b"fine")
    for waits in (True, False):
        wire.exchange.lost(wire.link(A), redis.exceptions.ConnectionError("reset"))
        assert wire.exchange.waiting is waits
        wire.exchange.next_round()
        wire.round()
    first, second = wire.exchange.result()
    assert isinstance(first, StoreUnavailable)
    assert second == b"fine"
    wire = Wire([get(key_on(A))])
    wire.round()
    wire.exchange.lost(wire.link(A), redis.exceptions.TimeoutError("slow"))  # after a time-out nothing is repeated
    assert not wire.exchange.waiting
    assert [type(answer) for answer in wire.exchange.result()] == [StoreUnavailable]


def test_a_command_for_every_primary_gets_all_their_replies_and_fails_if_one_of_them_does() -> None:
    wire = Wire([every("INFO", read=sorted), get(key_on(A))])
    assert wire.round() == [(A, 0), (B, 0), (A, 1)]
    wire.reply(B, b"of b")
    wire.reply(A, b"of a")
    wire.reply(A, b"value")
    assert wire.exchange.result() == [[b"of a", b"of b"], b"value"]
    wire = Wire([every("INFO", read=len)])
    wire.round(A)
    wire.reply(B, b"of b")
    (answer,) = wire.exchange.result()
    assert isinstance(answer, StoreError)


def test_what_an_owner_sent_to_a_server_that_broke_is_not_sent_again_nor_what_stands_behind_it() -> None:
    queue = next(number for number in range(99) if slot_of(KEYS.queue(number).state) <= HALF)
    pull = commands.pull(KEYS.queue(queue), "epoch#1", offset=0, room=1)
    wire = Wire([pull, get(key_on(A)), pull])
    sending = wire.exchange.to_send()
    for _ in range(2):
        node, sent = next(sending)
        wire.link(node).again(sent)
    wire.exchange.lost(wire.link(A), redis.exceptions.ConnectionError("reset"))
    assert list(sending) == []
    assert wire.exchange.next_round() == 0.0
    assert wire.round() == [(A, 1)]  # the caller's is repeated
    wire.reply(A, b"there")
    heard, other, behind = wire.exchange.result()
    assert (type(heard), other, type(behind)) == (StoreUnavailable, b"there", NotDone)
    wire = Wire([commands.claim(KEYS.queue(queue), "epoch")])  # it names no incarnation, and is sent again
    wire.round()
    wire.exchange.lost(wire.link(A), redis.exceptions.ConnectionError("reset"))
    assert (wire.exchange.next_round(), wire.round()) == (0.0, [(A, 0)])


# -- the barrier ---------------------------------------------------------------------------------------------------------

DURABILITY = Durability(replicas=1, timeout=2_000)


def cancel(queue: int) -> Command[list[str]]:
    return commands.cancel(KEYS.queue(queue), ["id"])


def begun(*wanted: Command[Any]) -> tuple[Wire, tuple[str, int], Link]:
    """Commands of one queue that were sent to its primary."""
    wire = Wire(wanted, DURABILITY)
    wire.round()
    (node,) = wire.exchange.links
    return wire, node, wire.link(node)


def cancelled(count: int, *, replicas: int) -> list[Any]:
    """Cancel something on one primary, and let so many replicas have it; the answers."""
    wire, node, link = begun(*[cancel(3)] * count)
    assert link.rest()
    for _ in range(count):
        wire.reply(node, [b"cancelled"])
    wire.reply(node, b"ok")
    wire.reply(node, replicas)
    assert not link.rest()
    return wire.exchange.result()


def test_a_change_that_too_few_replicas_have_is_unknown() -> None:
    assert cancelled(3, replicas=1) == [["cancelled"]] * 3
    assert [type(answer) for answer in cancelled(3, replicas=0)] == [NotDurable] * 3


def test_what_was_sent_once_more_behind_the_barrier_needs_another_one() -> None:
    wire, node, link = begun(cancel(3))
    assert link.rest()
    again = wire.reply(node, redis.exceptions.NoScriptError("No matching script."))
    assert again is not None
    assert scripts.load("cancel").text.encode() in again
    for reply in (b"ok", 1, [b"cancelled"]):
        wire.reply(node, reply)
    second = link.rest()
    assert [scripts.load("barrier").sha in str(second), "WAIT" in str(second)] == [True, True]
    for reply in (b"ok", 1):
        wire.reply(node, reply)
    assert wire.exchange.result() == [["cancelled"]]


def test_what_was_answered_on_a_connection_that_broke_before_the_barrier_is_unknown() -> None:
    wire, node, link = begun(cancel(3))
    wire.reply(node, [b"cancelled"])
    wire.exchange.lost(link, redis.exceptions.ConnectionError("reset"))
    assert [type(answer) for answer in wire.exchange.result()] == [NotDurable]


def test_a_change_that_went_elsewhere_is_covered_there_alone() -> None:
    wire, node, _ = begun(cancel(3))
    elsewhere = B if node == A else A
    wire.reply(node, redis.exceptions.MovedError(f"{slot_of(KEYS.queue(3).state)} {elsewhere[0]}:{elsewhere[1]}"))
    wire.exchange.next_round()
    assert wire.round() == [(elsewhere, 0)]
    assert wire.link(elsewhere).rest()
    for reply in ([b"cancelled"], b"ok", 1):
        wire.reply(elsewhere, reply)
    assert wire.exchange.result() == [["cancelled"]]


def test_what_only_reads_waits_for_nobody() -> None:
    _, _, link = begun(commands.find_by_key(KEYS.queue(3), "key", 10))
    assert not link.rest()
