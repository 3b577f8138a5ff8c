"""The pulls of one queue: where they go on, how much they take, and when the next one is worth it."""

from __future__ import annotations

import threading
from collections.abc import Sequence, Set

import msgspec

from delayq.errors import StoreError, StoreFull, StoreUnavailable
from delayq.store import commands
from delayq.store.commands import Command, Head, Now, Pulled
from workers.queue.cursor import Cursor
from workers.queue.flood import LATE, Flood
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import ParkedSets
from workers.queue.ramp import Ramp
from workers.queue.refusals import Refusals
from workers.queue.tenure import Tenure
from workers.queue.topics import Topics

__all__ = ["GROUPS", "LONGEST_WAIT", "Pull", "Pulling"]

LONGEST_WAIT = 1_000
#: Idle queues look in so many groups, each together: what one of them has brought into the CPU's cache serves the next,
#: which saves CPU. All in one would keep whatever falls due meanwhile waiting.
GROUPS = 4
APPEND_LOOK = 200
TURN_WAIT = 0.008
RESCAN = 1_000


class Pull(msgspec.Struct, frozen=True):
    """One pull, where it starts, and the place of what is fresh if it goes on from there and not from the offset."""

    start: Head
    fresh: Cursor | None
    command: Command[Pulled | None]


class Pulling:
    """Pulls one queue under one epoch: the backlog, and in a flood the fresh messages beside it."""

    def __init__(
        self, tenure: Tenure, in_flight: InFlight, parked: ParkedSets, refusals: Refusals, topics: Topics,
        turns: threading.Semaphore | None,
    ) -> None:  # fmt: skip
        self._tenure = tenure
        self._keys = tenure.keys
        self._store = tenure.store
        self._in_flight = in_flight
        self._parked = parked
        self._refusals = refusals
        self._topics = topics
        self._clock = tenure.clock
        self._policy = policy = tenure.policy
        self._turns = turns
        self._observer = tenure.observer
        self._spans = tenure.spans
        self._flood = Flood()
        self._ramp = Ramp(policy.ramp)
        # Appending a message weighs more on the server than handing it out; short scripts let others in between.
        self._look = min(policy.look, APPEND_LOOK) if topics.local else policy.look
        self._turn_taken = False
        self._rescan_at = 0
        self._now_offset: int | None = None  # Redis's now minus the monotonic clock
        self._next_due: tuple[int, int] | None = None  # due, and the µs by which now was past its ms

    def now(self) -> int:
        """Unix ms by the clock that the last pull went by."""
        if self._now_offset is None:
            return self._clock.now()
        return self._clock.monotonic() + self._now_offset

    # -- before a pull ---------------------------------------------------------------------------------------------

    def rewind(self, due: int) -> None:
        """Look again at everything from `due` on."""
        self._in_flight.rewind(due)
        self._flood.fresh.rewind(due)

    def look_at_refusals(self) -> None:
        """Ask streams that took nothing whether they take messages again; then what is parked for them comes back."""
        refusals, now = self._refusals, self._clock.monotonic()
        topics = refusals.to_ask(now)
        for topic, reason in self._ask_streams(topics).items():
            if reason:
                refusals.add(topic, reason, now)
            else:
                refusals.end(topic, now)
        if topics:
            self._topics.refuse(refusals.reasons)

    def find_refusals(self) -> bool:
        """After a pull that Redis refused: whether that is due to streams, which the next pull leaves alone then."""
        refusals, now = self._refusals, self._clock.monotonic()
        known = [one.topic for one in self._topics.known() if one.stream is not None]
        found = {topic: reason for topic, reason in self._ask_streams(known).items() if reason}
        for topic, reason in found.items():
            refusals.add(topic, reason, now)
        self._topics.refuse(refusals.reasons)
        return bool(found)

    def _ask_streams(self, topics: Sequence[str]) -> dict[str, str]:
        """Of each topic '' if its stream takes messages, or why not; nothing of those that cannot be asked now."""
        streams = {topic: stream for topic in topics if (stream := self._topics.stream(topic, self._keys)) is not None}
        answers = self._store.run_many([commands.takes(stream) for stream in streams.values()]) if streams else []
        return {
            topic: str(answer)
            for topic, answer in zip(streams, answers, strict=True)
            if not isinstance(answer, (StoreUnavailable, StoreFull))
        }

    def pulls(self, now: Now) -> list[Pull]:
        """What to pull now. Call `end_turn` when it is done, whatever came of it."""
        backlog = not self._in_flight.waiting and not self._ramp.holds_for(self._clock.monotonic())
        if not backlog:
            self._flood.backlog_waits(self.now())
        if self._flood.on and backlog and self._turns is not None:
            # Few pulls of backlogs at a time in the whole node, so that no fresh message waits behind sixteen.
            wait = min(TURN_WAIT, self._flood.fresh_in(self._clock.monotonic()) / 1000)
            backlog = self._turn_taken = self._turns.acquire(timeout=wait)
        pulls = []
        if backlog:
            pulls.append(self._pull(now))
        if self._flood.fresh_is_due(self._clock.monotonic()) and (pulls or not self._nothing_fresh()):
            pulls.append(self._pull(now, self._flood.fresh))
        return pulls

    def end_turn(self) -> None:
        """Let another queue of this node pull its backlog."""
        if self._turn_taken and self._turns is not None:
            self._turn_taken = False
            self._turns.release()

    def _nothing_fresh(self) -> bool:
        """Whether a pull of fresh messages would find none: this costs the server a twentieth of it."""
        try:
            return not self._store.run(commands.count(self._keys, self._flood.fresh.due, self.now()))
        except StoreError:
            return False

    def _pull(self, now: Now, fresh: Cursor | None = None) -> Pull:
        in_flight = self._in_flight
        look = self._ramp.look(self._clock.monotonic(), self._look)
        listed = fresh is None and self._clock.monotonic() >= self._rescan_at
        if listed:
            self._parked.ask()
        start = due, behind = in_flight.begin_pull() if fresh is None else fresh.begin_pull()
        return Pull(start, fresh, commands.pull(
            self._keys, self._tenure.incarnation.name, offset=due, behind=behind,
            held=in_flight.last_at_offset() if fresh is None else b"", room=min(look, in_flight.room), look=look,
            fresh=fresh is not None, known=self._topics.known(), unlisted_general=self._topics.unlisted_general,
            node_now=self._clock.now(), now=now, retention=self._tenure.retention, traced=self._spans is not None,
            listed=listed,
        ))  # fmt: skip

    # -- after a pull ----------------------------------------------------------------------------------------------

    def see_clock(self, answers: Sequence[Pulled | StoreError | None]) -> None:
        """Take in what time it is, from the answers to pulls: by the earlier one of both clocks."""
        for answer in answers:
            if isinstance(answer, Pulled):
                self._now_offset = answer.now - self._clock.monotonic()

    def failed(self, pull: Pull) -> None:
        """Nobody knows what it took."""
        (self._in_flight if pull.fresh is None else pull.fresh).pull_failed()

    def take(self, pull: Pull, pulled: Pulled, settled: Set[bytes]) -> bool:
        """Take what came, but for what this tick has `settled`; True if it is worth pulling again at once."""
        if pulled.unknown_topics:
            self._topics.learn(pulled.unknown_topics)
        for topic, error in pulled.refused.items():
            if not error.startswith("WRONGTYPE"):  # those are buried
                self._refusals.add(topic, error, self._clock.monotonic())
        if pulled.refused:
            self._topics.refuse(self._refusals.reasons)
        if self._observer is not None and (pulled.appended or pulled.tickets):
            self._observer.pulled(pulled)
        if self._spans is not None and pulled.traces:
            self._spans.appended(pulled.traces, self._clock.now())
        self._in_flight.accept(pulled, settled, pull.fresh)
        if pull.fresh is not None:
            self._flood.see_fresh(pulled)
        else:
            self._ramp.see(self._clock.monotonic(), pulled.appended + len(pulled.tickets), more=pulled.more)
            self._look_for_missed(pull, pulled)
            self._next_due = None if pulled.next_due is None else (pulled.next_due, pulled.micro)
            self._flood.see_backlog(pulled)
        if pull.fresh is None and self._ramp.holds_for(self._clock.monotonic()):
            return False
        # One that found no room is worth it if something was settled since the room was reckoned.
        return pulled.more and (pulled.last is not None or bool(pulled.unknown_topics) or bool(settled))

    def _look_for_missed(self, pull: Pull, pulled: Pulled) -> None:
        """Once a second compare what is known with what Redis has, which may have lost or got back anything."""
        if pulled.parked is None:
            return
        self._rescan_at = self._clock.monotonic() + RESCAN
        if self._in_flight.misses(pull.start, pulled.start):
            self._in_flight.rewind(0)
        self._in_flight.observe_sets(pulled.parked)

    @property
    def idle(self) -> bool:
        """Whether nothing waits for a report: what was confirmed makes no room that anything wants."""
        in_flight = self._in_flight
        if self._flood.on or not self._ramp.over or in_flight.unread or in_flight.to_settle:
            return False
        return not (in_flight.waiting or in_flight.parked_for_targets or in_flight.backs_off_until is not None)

    def pause(self, more: bool) -> float:
        """The ms until the next look, 0 = at once; `more`: something is known to be worth it."""
        in_flight, flood = self._in_flight, self._flood
        now = self._clock.monotonic()
        ramping = self._ramp.holds_for(now)
        # While something waits for room the backlog is not pulled; the report that makes room ends the pause.
        blocked = flood.on and bool(in_flight.waiting or ramping)
        # A rewound offset has something unread behind it; in a flood this turn may have been another queue's.
        unread = in_flight.unread or flood.on
        if more or in_flight.to_settle or (unread and not blocked and not ramping):
            return 1 if in_flight.waiting else 0
        longest: float = LONGEST_WAIT - (now + LONGEST_WAIT * self._keys.number // GROUPS) % LONGEST_WAIT
        if in_flight.waiting:
            longest = LATE  # others' reports make room too
        if (again_at := in_flight.backs_off_until) is not None:
            longest = min(longest, max(1, again_at - now))
        if blocked:
            longest = min(longest, flood.fresh_in(now))
        elif self._next_due is not None:
            due, micro = self._next_due
            longest = min(longest, due - self.now() - micro / 1000)
        if ramping:
            longest = min(longest, ramping, LATE + 1)  # by then fresh messages are not to wait with it
        return max(1 if in_flight.waiting else 0, longest)
