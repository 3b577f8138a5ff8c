"""An id that was cancelled before its message could be delivered may be scheduled again, if the caller says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq import Client, Conflict, Message, Scheduled
from delayq.care.undo_run import undo
from delayq.client.audit import By
from delayq.domain.message import RUN_PROPERTY
from delayq.store import commands
from delayq.store.commands import Known, Retention
from tests.support.queues import Queue, Row, row

STREAM = Known("orders", "orders")
AGAIN = {"a": "b", "r": "s", "p": "q"}
WINDOW = Retention().window


def again(id: str, spec: str, **more: Any) -> Row:
    """A message that is scheduled again."""
    return row(id, spec=AGAIN[spec[0]] + spec[1:], given=True, **more)


#: How a message ends that is due at 20,000, and what is said to whoever schedules it again (None: it is scheduled).
ENDINGS: dict[str, tuple[Callable[[Queue], object], str | None]] = {
    "cancelled": (lambda q: q.cancel("a", now=19_999), None),
    "cancelled in flight": (lambda q: (q.take(now=20_000), q.cancel("a")), "removedInFlight"),
    "cancelled when it was due": (lambda q: q.cancel("a", now=20_000), "removedInFlight"),
    "cancelled after a retry": (
        lambda q: (q.retry((q.take_one(now=20_000), 90_000)), q.cancel("a")),
        "removedInFlight",
    ),
    "delivered": (lambda q: q.ack(q.take_one(now=20_000)), "conflict"),
    "appended to a stream": (lambda q: q.pull(now=20_000, known=[STREAM]), "conflict"),
    "discarded": (lambda q: (q.bury(q.take_one(now=20_000)), q.discard("a")), "discarded"),
    "redriven and cancelled": (
        lambda q: (q.bury(q.take_one(now=20_000)), q.redrive("a"), q.cancel("a")),
        "removedInFlight",
    ),
}


@pytest.mark.parametrize("spec", ["a90000", "p90000", "r70000"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_only_what_was_surely_never_handed_out_is_scheduled_again(q: Queue, ending: str, spec: str) -> None:
    end, refused = ENDINGS[ending]
    q.given(row("a", at=20_000, keys=("old",), given=True))
    end(q)
    before = q.state()
    assert q.schedule(row("a", spec=spec, body="new", given=True), now=20_000).others[0][0] == (refused or "cancelled")
    assert q.state() == before
    answers = q.schedule(again("a", spec, body="new", keys=("new",)), now=20_000)
    if refused is not None:
        assert answers.others == {0: (refused, None)}
        assert q.state() == before
        return
    assert answers.others == {}
    state = q.state()
    assert (state.queue, state.keys, state.final, state.ended) == ({"a": 90_000}, {"new": ["a"]}, {}, {})


def test_a_repeated_call_schedules_no_second_one_whatever_became_of_the_first(q: Queue) -> None:
    for end, said in (
        (lambda: None, "live"),
        (lambda: q.ack(q.take_one(now=30_000)), "delivered"),
        (lambda: q.pull(now=30_000, known=[STREAM]), "delivered"),
        (lambda: q.bury(q.take_one(now=30_000)), "dead"),
        (lambda: (q.take(now=30_000), q.cancel("a")), "removedInFlight"),
    ):
        q.server.flush()
        q.given(row("a", at=20_000, given=True), now=10_000)
        q.cancel("a", now=11_000)
        call = again("a", "a30000", body="new")
        q.given(call, now=11_000)
        end()
        before = q.state()
        assert q.schedule(call).others[0][0] == said
        assert q.state() == before
        # Nor does a repeat of the call whose message was cancelled.
        assert q.schedule(row("a", at=20_000, given=True)).others[0][0] in ("conflict", said)
        assert q.state() == before


def test_where_the_date_has_passed_or_nothing_was_cancelled_it_is_as_ever(q: Queue) -> None:
    q.given(row("a", at=20_000, given=True), now=10_000)
    q.cancel("a", now=11_000)
    assert q.schedule(again("a", "p9000"), now=11_000).others == {0: ("past", None)}
    assert q.state().final == {"a": ("cancelled", 11_000)}
    assert q.schedule(again("b", "a20000"), again("b", "a20000")).others == {1: ("live", 20_000)}
    assert q.schedule(again("b", "a20000", body="other")).others == {0: ("conflict", 20_000)}
    assert q.schedule(again("a", "a20000"), again("a", "a20000")).others == {1: ("live", 20_000)}


def test_a_closed_queue_forgets_the_cancel_that_is_lifted_and_sends_on(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",), given=True), row("b", at=20_000, given=True), now=10_000)
    q.cancel("a", "b", now=11_000)
    q.run(commands.close(q.keys))
    assert q.schedule(row("a", at=20_000, given=True)).others == {0: ("cancelled", None)}
    assert q.schedule(again("a", "a20000")).others == {0: ("moved", None)}
    assert q.get("a")[0].state == "moved"  # type: ignore[union-attr]
    assert (q.state().final, q.state().ended, q.state().queue) == ({"b": ("cancelled", 11_000)}, {"b": []}, {})


def test_a_client_schedules_again_across_layouts_and_under_an_ordering_key(client: Client) -> None:
    first = client.schedule(Message(topic="orders", id="order-1", ordering_key="shop", body=1, delay_time=60_000))
    assert client.cancel("order-1").result == "cancelled"
    call = Message(topic="orders", id="order-1", ordering_key="shop", body=2, delay_time=60_000)
    with pytest.raises(Conflict, match="set 'again'"):
        client.schedule(call)
    for created in (True, False):
        (done,) = client.schedule_many(
            [Message(topic="orders", id="order-1", ordering_key="shop", body=2, delay_time=60_000, again=True)]
        )
        assert isinstance(done, Scheduled) and (done.id, done.created) == (first.id, created)
    assert client.cancel("order-1").result == "cancelled"


@pytest.mark.parametrize("given", [{"again": True}, {"id": "a", "again": "yes"}, {"id": "a", "again": 1}])
def test_again_takes_an_id_of_ones_own(client: Client, given: dict[str, Any]) -> None:
    (refused,) = client.schedule_many([Message(topic="orders", delay_time=60_000, **given)])
    assert getattr(refused, "field", None) == "again"


def test_what_an_undo_cancelled_for_certain_is_free_for_whoever_comes(client: Client) -> None:
    def message(id: str, body: str = "wrong", **more: Any) -> Message:
        return Message(
            topic="orders", id=id, body=body, properties={RUN_PROPERTY: "r1"}, **{"delay_time": 60_000} | more
        )

    client.schedule_many([message("pending"), message("due", delay_time=0), message("by-hand")])
    client.cancel("by-hand")
    for _ in undo(client.store, client.context(), "r1", By(actor="me")):
        pass
    outcomes = client.schedule_many([message(id, "right") for id in ("pending", "due", "by-hand")])
    assert [getattr(one, "state", None) for one in outcomes] == ["scheduled", "removedInFlight", "cancelled"]
    (found,) = client.get_many(["pending"])
    assert found is not None and found.record is not None and found.record.body == "right"
    assert client.cancel("pending").result == "cancelled"
    assert isinstance(client.schedule_many([message("pending", "right")])[0], Conflict)  # that cancel was another one
