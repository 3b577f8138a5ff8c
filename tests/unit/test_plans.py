"""Plans: what is sent, and what is made of the answers. No server runs here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from delayq.base.errors import Conflict, InvalidMessage, StoreError, StoreUnavailable
from delayq.client.changing import by_key as pages
from delayq.client.changing.by_key import by_key
from delayq.client.changing.dead_letters import discard, redrive
from delayq.client.changing.messages import cancel, reschedule, spec_of
from delayq.client.known_routes import KnownRoutes
from delayq.client.looking.dead_letters import dead_letters
from delayq.client.looking.messages import find, get
from delayq.client.plan import CHUNK, Context, Plan
from delayq.client.scheduling.schedule import CHUNK_BYTES, Scheduled
from delayq.domain.message import Limits, Message
from delayq.domain.routes import Route, Routes
from delayq.store.commands import Command
from delayq.store.keys import KEYS, Layout, Layouts
from tests.support.messages import messages, schedule_messages
from tests.support.nodes import lines_with

NOW = 2_000_000_000_000
SERVER_NOW = NOW + 7
ROUTES = Routes([Route(name="all", target="log:")])
LAYOUT = Layout(16)
CONTEXT = Context(layouts=Layouts([LAYOUT]), routes=KnownRoutes(ROUTES))

# Each is wrong in one field, or in its body, which only encoding tells.
spoilt: list[Callable[[Message], Message]] = [
    lambda message: replace(message, topic=""),
    lambda message: replace(message, id="not an id"),
    lambda message: replace(message, delay_time=-1, expect_date=None, delay_level=None),
    lambda message: replace(message, delay_time=1, expect_date=1),
    lambda message: replace(message, body="\ud800"),
    lambda message: replace(message, body="x" * (Limits().body + 1)),
    lambda message: replace(message, keys=("a b",)),
    lambda message: replace(message, properties={"a": "\0"}),
    lambda message: replace(message, id="i" * 128, ordering_key="k"),
]


def replies(*others: tuple[int, str, int | None]) -> list[Any]:
    """The reply of the schedule script: its time, and of each message not scheduled just so its place and what."""
    words = [(place, status.encode(), b"" if due is None else b"%d" % due) for place, status, due in others]
    return [b"%d" % SERVER_NOW, *(word for triple in words for word in triple)]


class Server:
    """Replies to the commands of a plan, and keeps what it was asked."""

    def __init__(self, reply: Callable[[Command[Any]], Any] | None = None) -> None:
        self.asked: list[Command[Any]] = []
        self._reply = reply or (lambda command: replies())

    def _answer(self, command: Command[Any]) -> Any:
        reply = self._reply(command) if command.script else b"16"  # the list of layouts
        return reply if isinstance(reply, StoreError) else command.read(reply)

    def run(self, plan: Plan[Any]) -> Any:
        answers: list[Any] | None = None
        try:
            while True:
                wanted = list(next(plan) if answers is None else plan.send(answers))
                self.asked += wanted
                answers = [self._answer(command) for command in wanted]
        except StopIteration as end:
            return end.value


def rows(command: Command[Any]) -> list[tuple[str, str, bytes]]:
    """id, spec and content of each message of a schedule command."""
    kinds = str(command.args[5])
    words: Sequence[Any] = command.args[6:]
    ids, bodies = words[: len(kinds)], words[len(kinds) :]
    return [(id, f"{kind}{int(body[:13])}", body[14:]) for kind, id, body in zip(kinds, ids, bodies, strict=True)]


@given(st.lists(st.tuples(messages(), st.none() | st.sampled_from(spoilt)), max_size=30))
def test_bad_messages_in_the_middle_are_told_and_the_good_ones_scheduled_in_order(
    given: list[tuple[Message, Callable[[Message], Message] | None]],
) -> None:
    server = Server()
    wanted = (spoil(message) if spoil else message for message, spoil in given)
    outcomes = server.run(schedule_messages(CONTEXT, wanted, NOW))
    assert len(outcomes) == len(given)
    sent = {id: (spec, content, command) for command in server.asked for id, spec, content in rows(command)}
    for (message, spoil), outcome in zip(given, outcomes, strict=True):
        if spoil:
            assert isinstance(outcome, InvalidMessage)
            continue
        if isinstance(outcome, InvalidMessage):  # the suffix of its key makes the id too long
            assert message.id is not None
            assert message.ordering_key
            continue
        assert isinstance(outcome, Scheduled)
        assert outcome.queue == LAYOUT.queue_of(outcome.id)
        assert outcome.id.startswith(message.id or "")
        spec, _, command = sent[outcome.id]
        assert KEYS.queue(outcome.queue).pool in command.keys
        assert spec[0].isupper() == (message.id is not None)
        if message.expect_date is not None:
            assert outcome.due == max(message.expect_date, SERVER_NOW)
        elif message.delay_time is not None:
            assert outcome.due == SERVER_NOW + message.delay_time


@given(st.lists(st.integers(1, 3), max_size=40), st.integers(1, 64))
def test_each_script_gets_messages_of_its_queue_only(numbers: list[int], queues: int) -> None:
    layout = Layout(queues)
    context = replace(CONTEXT, layouts=Layouts([layout]))
    kinds = {
        1: Message(topic="t", delay_time=0),
        2: Message(topic="t", delay_time=0, ordering_key="key"),
        3: Message(topic="t", delay_time=0, id="mine"),
    }
    wanted = [replace(kinds[kind], id=f"id-{at}") if kind == 3 else kinds[kind] for at, kind in enumerate(numbers)]
    server = Server()
    server.run(schedule_messages(context, wanted, NOW))
    for command in server.asked:
        queue_of = {layout.queue_of(id) for id, _, _ in rows(command)}
        assert [KEYS.queue(queue).pool for queue in queue_of] == [command.keys[2]]


def test_messages_without_id_and_key_share_scripts_that_are_bounded_in_number_and_bytes() -> None:
    for body, count, sizes in (("", 2 * CHUNK + 1, [CHUNK, CHUNK, 1]), ("x" * (CHUNK_BYTES // 4), 10, [4, 4, 2])):
        server = Server()
        wanted = (Message(topic="t", delay_time=0, body=body) for _ in range(count))
        server.run(schedule_messages(CONTEXT, wanted, NOW))
        assert [len(rows(command)) for command in server.asked] == sizes
    wanted = (Message(topic="t", delay_time=0) for _ in range(2 * CHUNK))
    next(iter(next(schedule_messages(CONTEXT, wanted, NOW))))
    assert len(list(wanted)) == CHUNK  # it is read only as far as its scripts are asked for


def test_each_answer_finds_its_message() -> None:
    others = (
        (0, "live", 5),
        (1, "conflict", 6),
        (2, "delivered", None),
        (3, "cancelled", None),
        (4, "invalid", None),
        (6, "conflict", None),
        (7, "dead", 8),
    )
    ids = [f"id-{number}.0001" for number in range(8)]
    server = Server(lambda command: replies(*others))
    wanted = [Message(topic="t", id=id, delay_time=10) for id in ids]
    live, conflict, delivered, cancelled, invalid, new, other, dead = server.run(
        schedule_messages(CONTEXT, wanted, NOW)
    )
    assert live == Scheduled(ids[0], 1, 5, created=False)
    assert isinstance(conflict, Conflict)
    assert (conflict.id, conflict.state, conflict.removed) == (ids[1], "", False)
    assert delivered == Scheduled(ids[2], 1, None, "delivered", created=False)
    assert isinstance(cancelled, Conflict)
    assert (cancelled.state, cancelled.removed) == ("cancelled", True)
    assert isinstance(other, Conflict)
    assert (other.state, other.removed) == ("delivered", False)
    assert dead == Scheduled(ids[7], 1, 8, "dead", created=False)
    assert isinstance(invalid, InvalidMessage)
    assert new == Scheduled(ids[5], 1, SERVER_NOW + 10)


def test_a_topic_without_a_route_and_a_script_that_failed_fail_their_own_messages_only() -> None:
    workers = KnownRoutes(ROUTES)
    workers.take(lines_with([{"name": "r", "match": "a*", "target": "log:"}]))
    context = replace(CONTEXT, routes=workers)
    lost = StoreUnavailable("away")
    server = Server(lambda command: lost if command.keys[0] == KEYS.queue(1).state else replies())
    wanted = [
        Message(topic=topic, id=f"{topic}.{queue:04x}", delay_time=0) for topic in ("a", "b", "ab") for queue in (0, 1)
    ]
    outcomes = server.run(schedule_messages(context, wanted, NOW))
    kinds = [Scheduled, StoreUnavailable, InvalidMessage, InvalidMessage, Scheduled, StoreUnavailable]
    assert [type(outcome) for outcome in outcomes] == kinds
    assert outcomes[2].field == outcomes[3].field == "topic"


def test_a_level_above_the_last_is_the_last() -> None:
    context = replace(CONTEXT, limits=Limits(delay_levels=(100, 200, 300)))
    for level, delay in {1: 100, 2: 200, 3: 300, 4: 300, 2**31: 300}.items():
        (outcome,) = Server().run(schedule_messages(context, [Message(topic="t", delay_level=level)], NOW))
        assert outcome.due == SERVER_NOW + delay
        assert spec_of(context.limits, NOW, None, None, level) == f"r{delay}"


def test_the_id_of_a_keyed_message_says_its_key() -> None:
    suffix = LAYOUT.keyed_id("", "customer-7")
    wanted = [
        Message(topic="t", delay_time=0, ordering_key="customer-7"),
        Message(topic="t", delay_time=0, ordering_key="customer-7", id="mine"),
        Message(topic="t", delay_time=0, ordering_key="customer-7", id=f"mine{suffix}"),
    ]
    made, given, again = Server().run(schedule_messages(CONTEXT, wanted, NOW))
    assert made.id.endswith(suffix)
    assert given.id == again.id == f"mine{suffix}"


# -- the other plans -----------------------------------------------------------------------------------------------------


def test_ids_are_asked_once_each_and_answered_in_order() -> None:
    ids = [f"id-{number}" for number in range(1_200)]

    def reply(command: Command[Any]) -> Any:
        if command.script == "asked":
            return [[] for _ in command.args]
        return [b"cancelled" if str(id).endswith("0") else b"not_found" for id in command.args[7:]]

    server = Server(reply)
    wanted = [*ids, *ids[:100]]
    results = server.run(cancel(CONTEXT, wanted))
    assert [result.id for result in results] == wanted
    assert all((result.result == "cancelled") == result.id.endswith("0") for result in results)
    cancels = [command for command in server.asked if command.script == "cancel"]
    assert sum(len(command.args[7:]) for command in cancels) == 1_200
    assert all(len(command.args[7:]) <= CHUNK for command in cancels)
    looks = [command for command in server.asked if command.script == "asked"]
    assert {id for command in looks for id in command.args} == {id for id in ids if not id.endswith("0")}
    assert all(len(command.args) <= CHUNK for command in looks)


def test_a_wrong_id_or_key_is_refused_before_anything_is_sent() -> None:
    server = Server()
    plans: list[tuple[str, Plan[Any]]] = [
        ("id", cancel(CONTEXT, ["good", "not good"])),
        ("id", get(CONTEXT, ["not good"])),
        ("id", redrive(CONTEXT, ["not good"])),
        ("id", reschedule(CONTEXT, "not good", "r5")),
        ("id", discard(CONTEXT, ["not good"])),
        ("key", find(CONTEXT, "not good")),
        ("key", by_key(CONTEXT, "", cancel)),
    ]
    for field, plan in plans:
        with pytest.raises(InvalidMessage) as caught:
            server.run(plan)
        assert caught.value.field == field
    assert server.asked == []


def test_a_page_that_cannot_be_read_is_told_behind_what_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)
    lost = StoreUnavailable("away")
    in_queue_0 = {"": [b"b.0000", [b"a.0000", b"b.0000"], []], "b.0000": lost}

    def reply(command: Command[Any]) -> Any:
        if command.script == "cancel":
            return [b"cancelled"] * len(command.args[7:])
        return in_queue_0[str(command.args[2])] if command.keys[0] == KEYS.queue(0).index else [b"", [], []]

    first, second, error = Server(reply).run(by_key(CONTEXT, "k", cancel))
    assert (first.id, second.id, error) == ("a.0000", "b.0000", lost)
    # If a first page cannot be read, nothing is cancelled.
    server = Server(lambda command: lost if command.keys[0] == KEYS.queue(3).index else [b"", [], []])
    with pytest.raises(StoreUnavailable):
        server.run(by_key(CONTEXT, "k", cancel))
    assert {command.script for command in server.asked} == {"", "find_by_key"}


@given(st.text() | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_any_page_token_is_read_or_refused(token: str) -> None:
    about = "pageToken"
    try:
        Server(lambda command: []).run(dead_letters(CONTEXT, 10, token))
    except InvalidMessage as error:
        about = error.field
    assert about == "pageToken"
