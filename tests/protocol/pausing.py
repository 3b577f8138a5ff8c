"""The state machine with pauses: set, brought to the queue or not, known to a node or not yet, and resumed.

Beside what must hold in any case: once a pause has been brought to the queue nothing of its topics is handed out until
somebody resumes them; and what it has held since before its due, and nobody sent before, is cancelled for certain.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from delayq.domain.policies import Policies
from delayq.store import commands
from delayq.store.commands import Change, PoliciesSet
from delayq.store.keys import KEYS
from tests.protocol.machine import IDS, Generation, Protocol
from tests.protocol.machine import made as made_as
from tests.protocol.world import Owner
from workers.sending.message import InFlightMessage

MATCHES = ("*", "g.*", "g.t", "?.u")
MAKER = "0000000001"


class Pausing(Protocol):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: set[str] = set()  # as they are set
        self.promised: dict[str, int] = {}  # by pattern, once the queue has it: its mark, as far as is known
        self.reads = False  # nodes read the policies whenever a queue has others

    @initialize()
    def first_policies(self) -> None:
        self.set("policy:any", "{}", apply=True)

    # -- callers -----------------------------------------------------------------------------------------------------

    @rule(match=st.sampled_from(MATCHES), apply=st.booleans())
    def pause(self, match: str, apply: bool = True) -> None:
        self.pauses.add(match)
        self.set(f"pause:{match}", "{}", apply=apply)

    @precondition(lambda self: self.pauses)
    @rule(match=st.sampled_from(MATCHES), apply=st.booleans())
    def resume(self, match: str, apply: bool = True) -> None:
        self.pauses.discard(match)
        self.promised.pop(match, None)
        self.set(f"pause:{match}", "", apply=apply)

    def set(self, field: str, value: str, *, apply: bool) -> None:
        self.step += 1
        store, world = self.world.store, self.world
        made = store.run(commands.set_policies(KEYS, [Change(field, value)], maker=MAKER, now=world.now))
        assert isinstance(made, PoliciesSet)
        if not apply:  # who has asked for it is dead, or will come later
            return
        self.look_at_stream()
        known = store.run(commands.plain("HGET", world.keys.state, "policies", read=lambda one: (one or b"").decode()))
        store.run(commands.apply_policies(world.keys, made.version, sorted(self.pauses), now=world.now))
        world._pass_wakes()
        woken = all(owner.woken for owner in world.owners)
        assert woken or made.version <= known, "its owner sleeps on when the queue has other policies"
        mark = max(world.now, self.model.pulled_to)
        self.promised = {match: self.promised.get(match, mark) for match in self.pauses}

    def paused(self, topic: str) -> list[int]:
        """The marks of the pauses that were promised for a topic."""
        return [mark for match, mark in self.promised.items() if fnmatchcase(topic, match)]

    @rule(id=st.sampled_from(IDS))
    def cancel(self, id: str) -> None:
        generation, marks = self.model.live.get(id), self.paused(made_as(id, 0).topic)
        super().cancel(id)
        if generation is None or generation.removed_at is None or not marks:
            return
        untouched = not (generation.sent or generation.was_exposed or generation.failures)
        assert not untouched or generation.due <= min(marks), f"{id} was held all along, yet the cancel was not certain"

    @rule(id=st.sampled_from(IDS), force=st.booleans())
    def deliver_now(self, id: str, force: bool) -> None:
        self.step += 1
        model, topic = self.model, made_as(id, 0).topic
        before, old, tickets = self.world.found([id])[id], model.live.get(id), self.world.tickets()
        result, due = self.world.deliver_now(id, topic, force=force)
        after = self.world.found([id])[id]
        assert (result == "held") <= (bool(self.pauses) and not force), f"{id} is held by nothing"
        if result == "scheduled" and ("now", id, force) in model.changes and self.world.tickets() == tickets:
            return  # the same call again, which gets the answer of the first
        if result == "scheduled":
            model.changes.add(("now", id, force))
        if result != "scheduled" or old is None or before is None or after is None:
            assert result != "scheduled" or old is not None, f"{id} was not pending and is to be delivered"
            return
        exposed = self.world.attempts(id) is not None
        let_past = force and exposed and bool(self.pauses)
        assert before.record is not None
        assert after.record is not None
        if before.record.generation == after.record.generation:
            old.forced = after.attempts if let_past else old.forced
            old.was_exposed = old.was_exposed or exposed
            old.due = old.due if due is None else due  # redriven by a clock that was ahead, it had to wait
            return
        assert due is not None
        touched = bool(old.sent or old.was_exposed or old.failures)
        assert exposed or not touched, f"{id} was in flight before, and is not exposed any more"
        new = Generation(id, due, self.step, failures=old.failures, was_exposed=exposed)
        new.forced = after.attempts if let_past else None
        if not touched:
            model.cancelled_for_certain.append(old)
        model.live[id] = new

    # -- nodes -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.owners)
    @rule(which=st.integers(0, 1))
    def a_node_reads_the_policies(self, which: int) -> None:
        self.step += 1
        self.read(self.world.owners[which % len(self.world.owners)])

    def read(self, owner: Owner) -> None:
        policies = owner.job._context.policies
        policies.ahead, policies.current = "", Policies.read(self.world.store.run(commands.policies(KEYS)))
        owner.woken = True

    def tick_owner(self, owner: Owner) -> None:
        super().tick_owner(owner)
        if self.reads and owner.job._context.policies.ahead:
            self.read(owner)

    def was_submitted(self, owner: Owner, held: InFlightMessage) -> None:
        super().was_submitted(owner, held)
        forced = self.held_by[id(held)].forced == held.attempts
        assert forced or not self.paused(held.topic), f"{held.id} is sent after its topic was paused"

    def look_at_stream(self) -> None:
        before = {id: one for id, one in self.model.live.items() if not one.confirmed}
        super().look_at_stream()
        for id, generation in before.items():
            if generation.confirmed and id[0] in "su" and generation.forced is None:
                assert not self.paused(made_as(id, 0).topic), f"{id} is appended after its topic was paused"

    def wake_all(self) -> None:
        super().wake_all()
        for owner in self.world.owners:
            owner.job.wake(None)

    @invariant()
    def whoever_sleeps_misses_nothing(self) -> None:
        version = self.world.store.run(commands.plain("HGET", self.world.keys.state, "policies", read=lambda one: one))
        if self.world.owners and (self.world.owners[-1].job.version.encode() == version):
            super().whoever_sleeps_misses_nothing()

    def drain(self) -> None:
        for match in sorted(self.pauses):
            self.resume(match)
        self.reads = True
        super().drain()
