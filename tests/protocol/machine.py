"""The protocol under hypothesis: the shipped scripts and the shipped pull job against a plain model of the promises.

The model does not know how the scripts work. It knows what was asked, what was answered, what was sent and what
became of it, and after every step it looks at what Redis holds and asks whether the change was allowed:

* a message that is gone was forwarded or cancelled; nothing that ended comes back;
* nothing is sent before its due, and nothing that was cancelled for certain is ever sent, before or after;
* attempts grow only by failures, dead letters come only from refusals or too many of them;
* within an ordering key nothing overtakes;
* whatever is due and not held by its owner finds that owner awake.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from delayq.domain.message import Message
from delayq.store.connect.store import Store
from delayq.targets import Result
from tests.protocol.world import BOUNDS, DELIVERED, RETENTION, START, Owner, World
from workers.sending.message import LOOK_AGAIN, InFlightMessage

NODES = (0, 1)
IDS = ("a", "b", "c", "d.00aa", "e.00aa", "f.00aa", "s1", "s2", "u1")
ENDINGS = ("ok", "ok", "unavailable", "lost", "arrived", "rejected")
OUTCOMES = {
    "ok": DELIVERED,
    "unavailable": Result.unavailable("down"),
    "lost": Result.unknown("no answer"),  # it never arrived
    "arrived": Result.unknown("no answer"),  # it did
    "rejected": Result.rejected("bad"),
}


@dataclass
class Call:
    """A schedule as it was called: to be repeated."""

    message: Message
    spec: str
    asked: int  # of an absolute due; of a relative one: the delay
    relative: bool

    @property
    def missed(self) -> int | None:
        """From when on it is not wanted any more."""
        return self.asked + 1 if self.spec[0] == "P" else None


@dataclass
class Generation:
    """One life of an id, from schedule, reschedule or redrive to its end."""

    id: str
    due: int
    born: int  # the step it was made in
    sent: int = 0
    arrived: bool = False  # the target has it
    confirmed: bool = False  # and said so
    failures: int = 0
    rejected: bool = False
    attempts: int = 0
    was_exposed: bool = False  # an earlier generation of the same message may have been sent
    removed_at: int | None = None  # really elapsed ms when a cancel said `inFlight`
    forced: int | None = None  # attempts when it was delivered by force, in spite of what is paused


@dataclass
class Model:
    calls: dict[str, Call] = field(default_factory=dict)
    live: dict[str, Generation] = field(default_factory=dict)
    dead: dict[str, Generation] = field(default_factory=dict)
    cancelled_for_certain: list[Generation] = field(default_factory=list)
    pulled_to: int = -1
    another_type: bool = False  # the key of a stream was, some time
    changes: set[tuple[str, str, int]] = field(default_factory=set)  # calls that gave a message another due


def made(id: str, due_in: int) -> Message:
    """The message that an id stands for in this world."""
    return Message(
        topic="s.t" if id.startswith("s") else "s.u" if id.startswith("u") else "g.t",
        body=f"body of {id}",
        keys=("k", f"key-{id}"),
        id=id,
        ordering_key="o" if "." in id else "",
        expect_date=due_in,
    )


class Protocol(RuleBasedStateMachine):
    """See the module. `store` is set by the test that runs it."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.store)
        self.model = Model()
        self.held_by: dict[int, Generation] = {}  # id of an InFlightMessage -> the generation that it is
        self.keep: list[InFlightMessage] = []
        self.step = 0
        self.latest = START - 1  # the latest that both clocks have reached together
        self.stream_seen: Counter[str] = Counter()
        self.pulled_at: dict[int, int] = {}
        self.by_ticket: dict[bytes, Generation] = {}

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.world.close()

    # -- callers -----------------------------------------------------------------------------------------------------

    @initialize()
    def first_owner(self) -> None:
        self.world.claim(0)

    @rule(id=st.sampled_from(IDS), after=st.integers(-3, 25), relative=st.booleans(), punctual=st.booleans())
    def schedule(self, id: str, after: int, relative: bool, punctual: bool = False) -> None:
        self.step += 1
        world = self.world
        if relative:
            message = msgspec.structs.replace(made(id, 1), expect_date=None, delay_time=max(0, after))
            call = Call(message, f"R{max(0, after)}", max(0, after), True)
        else:
            call = Call(
                made(id, world.now + after), f"{'P' if punctual else 'A'}{world.now + after}", world.now + after, False
            )
        status, due = world.schedule(call.message, call.spec)
        self.expect_schedule(id, call, status, due)

    @rule(id=st.sampled_from(IDS))
    def schedule_again(self, id: str) -> None:
        self.step += 1
        call = self.model.calls.get(id)
        if call is None:
            return
        status, due = self.world.schedule(call.message, call.spec)
        if id in self.model.live or id in self.model.dead:
            same = "live" if id in self.model.live else "dead"
            assert status == same, f"repeating the very call that made {id} was answered {status}"
        self.expect_schedule(id, call, status, due)

    def expect_schedule(self, id: str, call: Call, status: str, due: int | None) -> None:
        model, now = self.model, self.world.now
        if status == "new":
            assert id not in model.live and id not in model.dead, f"{id} was there and is scheduled again"
            assert call.missed is None or now < call.missed, f"{id} was not wanted any more and is scheduled"
            model.calls[id] = call
            when = now + call.asked if call.relative else max(call.asked, now)
            model.live[id] = Generation(id, when, self.step)
        elif status in ("live", "dead", "conflict", "delivered"):
            there = id in model.live or id in model.dead
            ended = status == "delivered" or (status == "conflict" and due is None)
            assert ended != there, f"{id} is {'' if there else 'not '}there and is {status}"
            assert status != "dead" or id in model.dead
            first = model.calls[id]
            same = first.relative == call.relative and (call.relative or first.asked == call.asked)
            assert (status == "conflict") != same, (
                f"{id}: {status}, though the call was {'the same' if same else 'other'}"
            )
        elif status == "past":
            assert call.missed is not None and now >= call.missed, f"{id} is refused before its time"
            assert id not in model.live and id not in model.dead, f"{id} is there and is refused"
        else:
            assert status in ("cancelled", "removedInFlight") and id not in model.live and id not in model.dead

    @rule(id=st.sampled_from(IDS))
    def cancel(self, id: str) -> None:
        self.step += 1
        model, now = self.model, self.world.now
        generation = model.live.get(id)
        result = self.world.cancel(id)
        if generation is None:
            allowed = ("dead",) if id in model.dead else ("notFound", "delivered", "cancelled", "inFlight")
            assert result in allowed, f"{id} is not pending, yet {result}"
            return
        del model.live[id]
        if result == "cancelled":
            model.cancelled_for_certain.append(generation)
            assert not generation.sent, f"{id} was sent, yet it was cancelled for certain"
            assert not generation.was_exposed, f"{id} was in flight before, yet it was cancelled for certain"
        elif result == "inFlight":
            untouched = not generation.sent and not generation.was_exposed and not generation.failures
            certain = untouched and generation.due > max(now, model.pulled_to)
            assert not certain, f"{id} was never pulled, yet the cancel was not certain"
            generation.removed_at = self.world.elapsed
        else:
            # Delivered, and the ack was not looked at yet.
            assert result in ("delivered", "notFound") and generation.confirmed, f"{id}: {result}"

    @rule(id=st.sampled_from(IDS), after=st.integers(0, 25))
    def reschedule(self, id: str, after: int) -> None:
        self.step += 1
        model, due = self.model, self.world.now + after
        generation, before = model.live.get(id), self.world.tickets()
        result, _ = self.world.reschedule(id, due)
        if result == "scheduled" and ("move", id, due) in model.changes and self.world.tickets() == before:
            return  # the same call again, which gets the answer of the first
        if result == "scheduled":
            model.changes.add(("move", id, due))
            assert generation is not None, f"{id} was not pending and is rescheduled"
            assert not generation.sent and not generation.was_exposed, f"{id} was sent, yet it was rescheduled"
            model.live[id] = Generation(id, due, self.step)
            model.cancelled_for_certain.append(generation)

    @rule(id=st.sampled_from(IDS))
    def cancel_and_use_the_id_again(self, id: str) -> None:
        """Once the cancel is forgotten, the id may stand for a new message while the old one is still being sent."""
        self.cancel(id)
        self.reconcile()
        self.time_passes(RETENTION.window + 1)
        self.schedule(id, 20, False)

    @precondition(lambda self: self.world.owners)
    @rule()
    def everything_arrives_but_nobody_hears_of_it(self) -> None:
        """Until all that is due is dead, though the target has it."""
        for _ in range(BOUNDS.max_attempts + 1):
            self.time_passes(20)
            for owner in list(self.world.owners):
                owner.sender.circuit.sent(True)
                self.tick_owner(owner)
                while owner.sender.outbox:
                    owner.sender.circuit.sent(True)
                    self.end_send(owner, 0, "arrived")
                self.tick_owner(owner)
            self.reconcile()

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data(), back=st.sampled_from((0, 20)))
    def redrive_one(self, data: st.DataObject, back: int) -> None:
        self.redrive(data.draw(st.sampled_from(sorted(self.model.dead))), back)

    def redrive(self, id: str, back: int) -> None:
        self.step += 1
        del self.model.dead[id]
        assert self.world.redrive(id) == "scheduled"
        self.model.live[id] = Generation(id, self.world.now, self.step, was_exposed=True)
        if back:
            self.the_clock_of_redis_steps(-back)

    # -- nodes -------------------------------------------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES))
    def change_owner(self, node: int) -> None:
        self.step += 1
        self.world.claim(node)

    @precondition(lambda self: self.world.owners)
    @rule(which=st.integers(0, 1))
    def tick(self, which: int) -> None:
        self.step += 1
        owners = self.world.owners
        self.tick_owner(owners[which % len(owners)])

    def tick_owner(self, owner: Owner) -> None:
        if owner.job.fenced and owner.job.finished:
            if owner in self.world.owners:
                self.world.owners.remove(owner)
            return
        before = dict(owner.job.in_flight.messages)
        submitted = self.world.tick(owner)
        for held in owner.job.in_flight.messages.values():
            if before.get(held.ticket) is not held:
                self.pulled_at[id(held)] = self.step
        for held in submitted:
            self.was_submitted(owner, held)
        self.look_at_stream()

    def was_submitted(self, owner: Owner, held: InFlightMessage) -> None:
        self.reach(owner)
        generation = self.generation_of(held)
        self.held_by[id(held)] = generation
        self.keep.append(held)
        self.check_not_early(held.id, held.score)
        self.check_order(held)
        generation.sent += 1
        self.check_not_cancelled(generation)
        self.check_not_removed_long_ago(generation)

    def generation_of(self, held: InFlightMessage) -> Generation:
        """Which life of the id this is: by its asked due and ticket."""
        known = self.by_ticket.get(held.ticket)
        assert known is not None, f"{held.id} is sent from a ticket that never was"
        return known

    def reach(self, owner: Owner) -> None:
        self.latest = max(self.latest, min(self.world.now, owner.clock.now()))

    def check_not_early(self, id: str, score: int) -> None:
        assert score <= self.latest, f"{id} is sent {score - self.latest} ms early"

    def check_not_cancelled(self, generation: Generation) -> None:
        assert not any(one is generation for one in self.model.cancelled_for_certain), (
            f"{generation.id} is sent after it was cancelled for certain"
        )

    def check_not_removed_long_ago(self, generation: Generation) -> None:
        since = self.world.elapsed - generation.removed_at if generation.removed_at is not None else 0
        assert since <= LOOK_AGAIN, f"{generation.id} is sent {since} ms after a cancel removed it"

    def check_order(self, held: InFlightMessage) -> None:
        if not held.record.keyed:
            return
        pulled = self.pulled_at.get(id(held), self.step)
        generation = self.held_by[id(held)]
        for other in self.model.live.values():
            if other is generation or not other.id.endswith(".00aa") or other.arrived:
                continue
            earlier = (other.due, other.id) < (generation.due, generation.id)
            if earlier and other.born < min(pulled, self.step):
                found = self.world.found([other.id])[other.id]
                assert found is None or found.state == "dead", f"{held.id} overtakes {other.id}, which is {found.state}"

    @precondition(lambda self: any(owner.sender.outbox for owner in self.world.owners))
    @rule(which=st.integers(0, 1), index=st.integers(0, 5), ending=st.sampled_from(ENDINGS))
    def send_ends(self, which: int, index: int, ending: str) -> None:
        self.step += 1
        owners = [owner for owner in self.world.owners if owner.sender.outbox]
        owner = owners[which % len(owners)]
        self.end_send(owner, index % len(owner.sender.outbox), ending)

    @precondition(lambda self: any(owner.sender.outbox for owner in self.world.owners))
    @rule(ending=st.sampled_from(ENDINGS))
    def all_sends_end_and_are_settled(self, ending: str) -> None:
        self.step += 1
        for owner in list(self.world.owners):
            while owner.sender.outbox:
                self.end_send(owner, 0, ending)
            self.tick_owner(owner)

    def end_send(self, owner: Owner, index: int, ending: str) -> None:
        held = self.world.answer(owner, index, OUTCOMES[ending])
        generation = self.held_by[id(held)]
        if ending in ("ok", "arrived"):
            generation.arrived = True
        if ending == "ok":
            generation.confirmed = True
        elif ending == "rejected":
            generation.rejected = True
        else:
            generation.failures += 1

    @rule()
    def the_key_of_a_stream_becomes_a_string(self) -> None:
        self.look_at_stream()
        self.world.consume("a string")
        self.model.another_type = True

    @rule()
    def the_key_of_a_stream_is_a_stream_again(self) -> None:
        self.look_at_stream()
        self.world.consume()

    # -- time --------------------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from((1, 2, 5, 8, 20, 1_000)))
    def time_passes(self, ms: int) -> None:
        self.step += 1
        self.world.advance(ms)

    @rule(ms=st.sampled_from((-20, -5, 5, 3_600_000)))
    def the_clock_of_redis_steps(self, ms: int) -> None:
        self.step += 1
        # A step forward makes what is due due; afterwards the clock is set right again, as operators do.
        if ms > 1_000:
            self.world.now += ms
            for owner in list(self.world.owners):
                self.tick_owner(owner)
            self.reconcile()
            self.world.now -= ms
        else:
            self.world.now += ms
        self.wake_all()

    def both_clocks_are_far_ahead_for_a_while(self) -> None:
        """What is due by then is pulled; afterwards both are set right again."""
        self.step += 1
        owner = self.world.owners[-1]
        self.world.now += 3_600_000
        self.tick_owner(owner)  # it learns the topic
        self.tick_owner(owner)
        self.reconcile()
        self.world.now -= 3_600_000
        self.wake_all()

    @rule(node=st.sampled_from(NODES), ms=st.sampled_from((-20, 0, 20, 3_600_000)))
    def the_clock_of_a_node_steps(self, node: int, ms: int) -> None:
        self.step += 1
        self.world.skews[node] = ms
        for owner in self.world.owners:
            if owner.node == node:
                owner.clock.error = ms
        self.wake_all()

    def wake_all(self) -> None:
        """A wait that was worked out before the step ends within a second; here it ends at once."""
        for owner in self.world.owners:
            owner.job.wake(None)
            owner.woken = True

    # -- what must hold after every step -----------------------------------------------------------------------------

    @invariant()
    def reconcile(self) -> None:
        world, model = self.world, self.model
        self.look_at_stream()
        records = world.records()
        tickets = world.tickets()
        found = world.found(IDS)
        for name, generation in list(model.live.items()):
            one = found[name]
            if one is None or one.record is None:
                assert generation.arrived or generation.confirmed, f"{name} is gone and was never delivered"
                assert generation.confirmed, f"{name} is gone, though nobody confirmed it"
                del model.live[name]
                continue
            self.by_ticket.setdefault(f"{name}\0".encode() + one.record.generation, generation)
            if one.state == "dead":
                allowed = generation.rejected or generation.failures >= BOUNDS.max_attempts
                allowed = allowed or (model.another_type and name.startswith("u"))
                assert allowed, f"{name} is dead: {one.reason}"
                model.dead[name] = model.live.pop(name)
                continue
            assert one.attempts <= generation.failures, f"{name} counts failures that never were"
            if one.due is not None and one.due != generation.due and not generation.failures:
                raise AssertionError(f"{name} has another due than asked")
        for name in records:
            assert name in model.live or name in model.dead, f"{name} ended and is back"
        for ticket in tickets:
            record = records.get(ticket[:-8].decode())
            assert record is not None and record.generation == ticket[-7:], "a ticket without its record"

    @invariant()
    def every_message_is_accounted_for(self) -> None:
        assert self.world.stats().missing == 0

    @invariant()
    def whoever_sleeps_misses_nothing(self) -> None:
        if not self.world.owners:
            return
        owner = self.world.owners[-1]
        if owner.job.fenced or not owner.asleep:
            return
        now = min(self.world.now, owner.clock.now())
        held = owner.job.in_flight.messages
        for ticket, due in self.world.tickets().items():
            assert due > now or ticket in held, f"{ticket!r} is due and its owner sleeps"

    def look_at_stream(self) -> None:
        ids = Counter(self.world.streamed())
        for owner in self.world.owners:
            self.reach(owner)
        for name in (ids - self.stream_seen).elements():
            generation = self.model.live.get(name)
            assert generation is not None, f"{name} is appended, though it ended"
            assert not generation.confirmed, f"{name} is appended twice"
            self.check_not_early(name, generation.due)
            generation.sent += 1
            generation.arrived = generation.confirmed = True
            self.check_not_cancelled(generation)
        self.stream_seen = ids
        for owner in self.world.owners:
            for held in owner.job.in_flight.messages.values():
                self.model.pulled_to = max(self.model.pulled_to, held.score)
        if ids:
            self.model.pulled_to = max(self.model.pulled_to, self.latest)

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """With everything well again, all that was accepted is forwarded, or a dead letter."""
        world = self.world
        self.the_key_of_a_stream_is_a_stream_again()
        world.skews = {}
        world.now = max(world.now, START + world.elapsed)
        owner = world.claim(0)
        for turn in range(120):
            # A retry that was counted while the clock of Redis stood an hour ahead waits for that hour.
            world.advance(4_000_000 if turn == 60 else 400)
            for one in list(world.owners):
                while one.sender.outbox:
                    self.end_send(one, 0, "ok")
                if one is owner:
                    self.tick_owner(one)
            self.reconcile()
            if not self.model.live:
                break
        assert not self.model.live, f"never forwarded: {sorted(self.model.live)}"
        assert not world.tickets(), "tickets are left over"
        assert set(world.records()) == set(self.model.dead)
