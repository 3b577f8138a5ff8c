"""Whatever clients, reshards and drops do in whatever order, each id is what a plain dictionary says it is.

Each client has a list of layouts of its own, as old as it happens to be. Steps are whole calls: what comes between the
scripts of a call is searched by the model in reliability/model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from delayq.base.errors import Conflict
from delayq.client.changing.by_key import by_key
from delayq.client.changing.dead_letters import discard, redrive
from delayq.client.changing.messages import cancel, reschedule
from delayq.client.known_routes import KnownRoutes
from delayq.client.looking.dead_letters import dead_letters
from delayq.client.looking.messages import find, get
from delayq.client.looking.service import queues
from delayq.client.plan import Context, Plan
from delayq.client.scheduling.schedule import Scheduled
from delayq.domain.message import Message
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Retention
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Layout, Layouts, following
from reliability.mutants.rules import Mutant, plant
from tests.support.amounts import amount
from tests.support.messages import schedule_messages
from tests.support.queues import EPOCH, Taken, taken
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from workers.node.duties.layouts import LayoutWatch

HOUR = 3_600_000
FAR = 4_000_000_000_000  # when everything is due
FORGET_ALL = Retention(window=-(10**13))
IDS = st.sampled_from([f"id-{number}" for number in range(6)])
CLIENTS = st.integers(0, 2)


class Reshards(RuleBasedStateMachine):
    """The store under test, and beside it what should be so."""

    store: Store
    flush: Any

    @initialize()
    def begin(self) -> None:
        type(self).flush()
        self.listed = self.store.run(commands.layout(KEYS, 2)).layouts
        self.suffixes = count()
        self.open: set[int] = set(self.listed[0].numbers)
        routes = Routes([Route(name="all", target="log:")])
        self.clients = [Context(layouts=Layouts(self.listed), routes=KnownRoutes(routes)) for _ in range(3)]
        self.live: dict[str, tuple[str, int]] = {}  # id → body, queue
        self.dead: dict[str, tuple[str, int]] = {}
        self.ended: dict[str, tuple[str, int]] = {}  # id → how, queue
        self.delivered: dict[str, str] = {}  # id → body
        self.redriven: set[str] = set()  # and not tried since
        self.held: list[tuple[Taken, int]] = []  # by owners, and their queues; perhaps of what has ended or moved since
        self.in_flight: dict[str, bytes] = {}  # id → the ticket by which it is to be settled

    def ask(self, plan: Plan[Any]) -> Any:
        answers: list[Any] | None = None
        try:
            while True:
                wanted = next(plan) if answers is None else plan.send(answers)
                answers = self.store.run_many(wanted)
        except StopIteration as end:
            return end.value

    def place(self, id: str) -> int:
        """The queue that a new message of this id has to go to: the oldest that is open."""
        queues = (layout.queue_of(id) for layout in self.listed)
        return next(queue for queue in queues if queue in self.open)

    # -- calls ---------------------------------------------------------------------------------------------------------

    @rule(client=CLIENTS, id=IDS, body=st.sampled_from("ab"), again=st.booleans())
    def schedule(self, client: int, id: str, body: str, again: bool) -> None:
        message = Message(topic="t", body=body, expect_date=FAR, id=id, keys=("all",), again=again)
        if again and id in self.ended and self.ended[id][0] == "cancelled":
            del self.ended[id]  # in whichever layout it was cancelled
        (outcome,) = self.ask(schedule_messages(self.clients[client], [message], FAR - HOUR))
        if id in self.live or id in self.dead:
            kept, queue = self.live.get(id) or self.dead[id]
            if kept == body:
                assert (outcome.queue, outcome.created) == (queue, False)
                assert outcome.state == ("dead" if id in self.dead else "scheduled")
            else:
                assert isinstance(outcome, Conflict)
                assert not outcome.state
        elif id in self.ended:
            how, _ = self.ended[id]
            if how == "delivered" and self.delivered[id] == body:
                assert (outcome.state, outcome.created) == ("delivered", False)
            else:
                assert isinstance(outcome, Conflict)
                assert outcome.state == how
        else:
            assert isinstance(outcome, Scheduled)
            assert outcome.created
            assert outcome.queue == self.place(id)
            self.live[id] = (body, outcome.queue)

    @rule(client=CLIENTS, many=st.integers(1, 5))
    def schedule_without_ids(self, client: int, many: int) -> None:
        messages = [Message(topic="t", body="new", expect_date=FAR, keys=("all",)) for _ in range(many)]
        suffix = f".{next(self.suffixes) * 40_503 % 65_536:04x}"  # not by chance: the machine has to do the same again
        with patch.object(Layout, "random_suffix", staticmethod(lambda: suffix)):
            outcomes = self.ask(schedule_messages(self.clients[client], messages, FAR - HOUR))
        for outcome in outcomes:
            assert isinstance(outcome, Scheduled)
            assert outcome.created
            assert outcome.queue == self.place(outcome.id)
            self.live[outcome.id] = ("new", outcome.queue)

    @rule(client=CLIENTS, ids=st.lists(IDS, min_size=1, max_size=6, unique=True))
    def cancel(self, client: int, ids: list[str]) -> None:
        for one in self.ask(cancel(self.clients[client], ids)):
            self.cancelled(one.id, one.result)

    @rule(client=CLIENTS)
    def cancel_by_key(self, client: int) -> None:
        found = self.ask(by_key(self.clients[client], "all", cancel))
        assert sorted(one.id for one in found) == sorted(self.live | self.dead | self.ended)
        for one in found:
            self.cancelled(one.id, one.result)

    def cancelled(self, id: str, result: str) -> None:
        if id in self.live:
            assert result in ("cancelled", "inFlight")
            self.ended[id] = ("removedInFlight" if result == "inFlight" else result, self.live.pop(id)[1])
            self.in_flight.pop(id, None)
        elif id in self.dead:
            assert result == "dead"
        else:
            how = self.ended[id][0] if id in self.ended else "notFound"
            assert result == ("inFlight" if how == "removedInFlight" else how)

    @rule(client=CLIENTS, ids=st.lists(IDS, min_size=1, max_size=6, unique=True))
    def redrive(self, client: int, ids: list[str]) -> None:
        for id, result in zip(ids, self.ask(redrive(self.clients[client], ids)), strict=True):
            came = self.ended.get(id, ("",))[0] == "delivered"
            again = id in self.redriven and (id in self.live or came)
            assert result == ("scheduled" if id in self.dead or again else "notDead")
            if id in self.dead:
                self.live[id] = self.dead.pop(id)
                self.redriven.add(id)

    @rule(client=CLIENTS, id=IDS, which=st.none() | st.integers(0, 20))
    def discard(self, client: int, id: str, which: int | None) -> None:
        if self.dead and which is not None:
            id = sorted(self.dead)[which % len(self.dead)]
        again = id in self.ended and self.ended[id][0] == "discarded"
        gone = ["discarded" if id in self.dead or again else "notDead"]
        assert self.ask(discard(self.clients[client], [id])) == gone
        if id in self.dead:
            self.ended[id] = ("discarded", self.dead.pop(id)[1])

    @rule(client=CLIENTS, id=IDS)
    def reschedule(self, client: int, id: str) -> None:
        outcome = self.ask(reschedule(self.clients[client], id, f"a{FAR}"))
        if id in self.live:
            assert outcome.result in ("scheduled", "inFlight")
            assert outcome.queue == self.live[id][1]
            self.in_flight.pop(id, None)
            self.held = [held for held in self.held if held[0].id != id]  # it is pulled anew
        elif id in self.dead:
            assert outcome.result == "dead"
        else:
            how = self.ended[id][0] if id in self.ended else "notFound"
            assert outcome.result == how

    # -- the owner of a queue ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def pull(self, data: st.DataObject) -> None:
        """All that is due in a queue is in flight from now on, also if it is so already."""
        queue = data.draw(st.sampled_from(sorted({queue for _, queue in self.live.values()})))
        keys = KEYS.queue(queue)
        # The clients go by the clock of Redis, for which this is years ahead: it must not make their ids old.
        keep = Retention(window=FAR)
        pulled = self.store.run(commands.pull(keys, EPOCH, offset=0, room=500, node_now=FAR, now=FAR, retention=keep))
        found = taken(pulled)
        assert {one.id for one in found} == {id for id, (_, where) in self.live.items() if where == queue}
        self.held += [(one, queue) for one in found]
        self.in_flight.update((one.id, one.ticket) for one in found)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), bury=st.booleans())
    def settle(self, data: st.DataObject, bury: bool) -> None:
        """Some of what an owner holds was forwarded, or is given up; what has ended meanwhile, or been moved, stays as it is."""
        for place in sorted(data.draw(st.sets(st.sampled_from(range(len(self.held))), min_size=1)), reverse=True):
            one, queue = self.held.pop(place)
            if bury:
                self.store.run(commands.bury(KEYS.queue(queue), EPOCH, [(one, 1, "no")]))
            else:
                self.store.run(commands.ack(KEYS.queue(queue), EPOCH, [one]))
            if self.in_flight.get(one.id) != one.ticket:
                continue
            del self.in_flight[one.id]
            self.redriven.discard(one.id)
            if bury:
                self.dead[one.id] = self.live.pop(one.id)
                continue
            self.delivered[one.id], where = self.live.pop(one.id)
            self.ended[one.id] = ("delivered", where)

    # -- the reshard, and what follows it ------------------------------------------------------------------------------

    @rule(queues=st.integers(1, 5))
    def list_another(self, queues: int) -> None:
        after = (*self.listed, following(self.listed, queues))
        if len(after) < 5:
            assert self.store.run(commands.set_layouts(KEYS, self.listed, after)) == after
            self.listed = after
            self.open.update(after[-1].numbers)

    @precondition(lambda self: len(self.listed) > 1)
    @rule(data=st.data())
    def close_some(self, data: st.DataObject) -> None:
        old = [queue for layout in self.listed[:-1] for queue in layout.numbers]
        for queue in data.draw(st.sets(st.sampled_from(old))):
            assert self.store.run(commands.close(KEYS.queue(queue))) == (queue in self.open)
            self.open.discard(queue)

    @precondition(lambda self: len(self.listed) > 1)
    @rule()
    def drop(self) -> None:
        """The window passes for queues that are empty, and a worker looks."""
        held = {queue for _, queue in (*self.live.values(), *self.dead.values())}
        LayoutWatch(self.store, self.listed, FORGET_ALL, lambda queues: None).retire()
        after = self.store.run(commands.layouts(KEYS))
        for layout in self.listed[:-1]:
            gone = layout not in after
            assert gone == all(queue not in held and queue not in self.open for queue in layout.numbers)
        self.listed = after
        # Whatever it looked at is forgotten: queues that are closed and empty, up to the first that is not.
        for id, (_, queue) in list(self.ended.items()):
            if not self.store.run(commands.stats(KEYS.queue(queue))).remembered:
                del self.ended[id]

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def every_message_is_where_it_should_be_once(self) -> None:
        if not hasattr(self, "listed"):
            return
        stats = [self.store.run(commands.stats(KEYS.queue(queue))) for queue in range(self.listed[-1].numbers.stop)]
        listed = {queue for layout in self.listed for queue in layout.numbers}
        assert sum(one.scheduled for one in stats if one.queue in listed) == len(self.live)
        assert sum(one.dead for one in stats if one.queue in listed) == len(self.dead)
        assert not any(one.scheduled or one.dead for one in stats if one.queue not in listed)

    @rule(client=CLIENTS)
    def look(self, client: int) -> None:
        context = self.clients[client]
        every = sorted(self.live | self.dead | self.ended)
        found = dict(zip(every, self.ask(get(context, every)), strict=True))
        for id, (_, queue) in self.live.items():
            one = found[id]
            assert one is not None
            assert (one.queue, one.record is not None) == (queue, True)
        assert {id for id, one in found.items() if one and one.state == "dead"} == self.dead.keys()
        assert {one.id for one in self.ask(find(context, "all"))} == self.live.keys() | self.dead.keys()
        assert {one.queue for one in self.ask(queues(context))} == {
            queue for layout in self.listed for queue in layout.numbers
        }
        letters, token = [], None
        while True:
            page = self.ask(dead_letters(context, 2, token))
            letters += page.letters
            token = page.next_token
            if token is None:
                break
        assert {one.id: one.queue for one in letters} == {id: queue for id, (_, queue) in self.dead.items()}


def run(server: ServerUnderTest, *seeds: int) -> None:
    """Draw ten examples from each of these seeds."""
    store = Store(server.url, timeout=PATIENCE)

    class Machine(Reshards):
        pass

    Machine.store, Machine.flush = store, staticmethod(server.flush)
    how = settings(
        max_examples=10,
        stateful_step_count=40,
        suppress_health_check=list(HealthCheck),
        derandomize=False,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    try:
        for drawn in seeds:
            run_state_machine_as_test(seed(drawn)(Machine), settings=how)
    finally:
        store.close()


@pytest.mark.parametrize("first", range(1, amount(12, 120), 2))
def test_every_client_is_told_the_truth_while_queues_are_resharded(valkey: ServerUnderTest, first: int) -> None:
    run(valkey, first, first + 1)


NOT_HERE = "redis.call('HEXISTS', state, 'closed') == 1 and 'moved' or 'not_found'"
#: Each with seeds that show it.
MUTANTS = (
    (
        Mutant("a closed queue that takes new messages", (("schedule", "elseif known[1] then", "elseif false then"),)),
        (1, 3, 4),
    ),
    (Mutant("a burial of what has ended meanwhile", (("bury", "if how == 'ok' then", "if true then"),)), (3, 5, 6)),
    (
        Mutant(
            "dropping what holds messages", (("is_drained", "redis.call('EXISTS', queue, pool, dead) > 0", "false"),)
        ),
        (1, 3, 5),
    ),
    (
        Mutant("dropping what is open", (("is_drained", "redis.call('HGET', state, 'closed') ~= '1'", "false"),)),
        (1, 2, 3),
    ),
)


@pytest.mark.parametrize(("mutant", "seeds"), MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant, _ in MUTANTS])
def test_the_machine_fails_without_a_rule_of_the_scripts(
    mutant: Mutant, seeds: tuple[int, ...], valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(mutant, monkeypatch)
    with pytest.raises(AssertionError):
        run(valkey, *seeds, *range(amount(0, 200)))


@pytest.mark.parametrize(
    ("script", "call"),
    [
        ("cancel", lambda machine: machine.cancel(client=1, ids=["a"])),
        ("get", lambda machine: machine.look(client=1)),
        ("reschedule", lambda machine: machine.reschedule(client=1, id="a")),
    ],
    ids=["a-cancel-that-is-not-sent-on", "a-look-that-is-not-sent-on", "a-reschedule-that-is-not-sent-on"],
)
def test_the_machine_fails_when_an_answer_does_not_send_on(
    script: str, call: Callable[[Reshards], None], valkey: ServerUnderTest
) -> None:
    def walk() -> None:
        with closing(Store(valkey.url, timeout=PATIENCE)) as store:
            machine = type("Machine", (Reshards,), {"store": store, "flush": staticmethod(valkey.flush)})()
            machine.begin()
            machine.list_another(queues=3)
            for queue in machine.listed[0].numbers:
                store.run(commands.close(KEYS.queue(queue)))
                machine.open.discard(queue)
            machine.schedule(client=0, id="a", body="a", again=False)
            call(machine)

    walk()
    with pytest.MonkeyPatch.context() as patched:
        plant(Mutant(f"a {script} that is not sent on", ((script, NOT_HERE, "'not_found'"),)), patched)
        with pytest.raises(AssertionError):
            walk()


def test_the_machine_fails_when_the_newest_layout_is_asked_first(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Layouts, "place", lambda layouts, id, behind=-1: layouts.known[-1].queue_of(id))
    with pytest.raises(AssertionError):
        run(valkey, 1, 2, 3)
