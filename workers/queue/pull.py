"""The pulls of one queue: where they go on, how much they take, and when the next one is worth it."""

from __future__ import annotations

import threading
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import msgspec

from delayq.clock import Clock
from delayq.errors import StoreError, StoreFull, StoreUnavailable
from delayq.store import commands
from delayq.store.commands import Command, Head, Now, Pulled, Retention
from delayq.store.connect.store import Store
from workers.queue.flood import LATE, Flood
from workers.queue.in_flight import Cursor
from workers.queue.policy import Policy
from workers.queue.ramp import Ramp
from workers.queue.sort import Dispatch
from workers.queue.tenure import Tenure
from workers.queue.topics import Topics
from workers.sending.observer import Observer

if TYPE_CHECKING:
    from workers.sending.spans import Spans

__all__ = ["GROUPS", "LONGEST_WAIT", "Pull", "Pulling"]

LONGEST_WAIT = 1_000
#: Idle queues look in so many groups, each together: what one of them has brought into the CPU's cache serves the next,
#: which saves CPU. All in one would keep whatever falls due meanwhile waiting.
GROUPS = 4
APPEND_LOOK = 200
TURN_WAIT = 0.008
RESCAN = 1_000


class Pull(msgspec.Struct, frozen=True):
    """One pull, the cursor that it moves on, and where it starts."""

    cursor: Cursor
    start: Head
    fresh: bool
    command: Command[Pulled | None]


class Pulling:
    """Pulls one queue under one epoch: the backlog, and in a flood the fresh messages beside it."""

    def __init__(
        self, tenure: Tenure, dispatch: Dispatch, *, store: Store, topics: Topics, clock: Clock, policy: Policy,
        retention: Retention, turns: threading.Semaphore | None, observer: Observer | None, spans: Spans | None,
    ) -> None:  # fmt: skip
        self._tenure = tenure
        self._keys = tenure.keys
        self._store = store
        self._dispatch = dispatch
        self._topics = topics
        self._clock = clock
        self._policy = policy
        self._retention = retention
        self._turns = turns
        self._observer = observer
        self._spans = spans
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
        self._dispatch.flight.offset.rewind(due)
        self._flood.fresh.rewind(due)

    def drop_failed(self) -> None:
        """Pull messages with an ordering key anew whose back-off is over."""
        now = self._clock.monotonic()
        for held in self._dispatch.lanes.backing_off():
            if held.again_at <= now:
                self._dispatch.drop_lane(held)

    def look_at_refusals(self) -> None:
        """Ask streams that took nothing whether they take messages again; then what is parked for them comes back."""
        refusals, now = self._dispatch.refusals, self._clock.monotonic()
        topics = refusals.to_ask(now)
        for topic, reason in self._ask_streams(topics).items():
            route = self._topics.route(topic)
            if reason:
                refusals.add(topic, reason, now)
            elif route is not None:
                refusals.end(topic, now)
                self._dispatch.returning.add(f"t:{route.name}")
        if topics:
            self._topics.refuse(refusals.reasons)

    def find_refusals(self) -> bool:
        """After a pull that Redis refused: whether that is due to streams, which the next pull leaves alone then."""
        refusals, now = self._dispatch.refusals, self._clock.monotonic()
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
        backlog = not self._dispatch.waiting and not self._ramp.holds_for(self._clock.monotonic())
        if not backlog:
            self._flood.backlog_waits(self.now())
        if self._flood.on and backlog and self._turns is not None:
            # Few pulls of backlogs at a time in the whole node, so that no fresh message waits behind sixteen.
            wait = min(TURN_WAIT, self._flood.fresh_in(self._clock.monotonic()) / 1000)
            backlog = self._turn_taken = self._turns.acquire(timeout=wait)
        pulls = []
        if backlog:
            pulls.append(self._pull(self._dispatch.flight.offset, now, fresh=False))
        if self._flood.fresh_is_due(self._clock.monotonic()) and (pulls or not self._nothing_fresh()):
            pulls.append(self._pull(self._flood.fresh, now, fresh=True))
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

    def _pull(self, cursor: Cursor, now: Now, *, fresh: bool) -> Pull:
        flight, policy = self._dispatch.flight, self._policy
        look = self._ramp.look(self._clock.monotonic(), self._look)
        room = min(look, policy.window - len(flight))
        if flight.bytes >= policy.window_bytes:
            room = 0
        listed = not fresh and self._clock.monotonic() >= self._rescan_at
        if listed:
            self._dispatch.parked.ask()
        cursor.pulls()
        return Pull(cursor, cursor.place, fresh, commands.pull(
            self._keys, self._tenure.name, offset=cursor.due, behind=cursor.ticket,
            held=b"" if fresh else flight.last_held(), room=max(0, room), look=look, fresh=fresh,
            known=self._topics.known(), unlisted_general=self._topics.unlisted_general,
            node_now=self._clock.now(), now=now, retention=self._retention, traced=self._spans is not None,
            listed=listed,
        ))  # fmt: skip

    # -- after a pull ----------------------------------------------------------------------------------------------

    def see_clock(self, answers: Sequence[Pulled | StoreError | None]) -> None:
        """Take in what time it is, from the answers to pulls: by the earlier one of both clocks."""
        for answer in answers:
            if isinstance(answer, Pulled):
                self._now_offset = answer.now - self._clock.monotonic()

    def take(self, pull: Pull, pulled: Pulled, told_of: Set[bytes]) -> bool:
        """Take what came; True if it is worth pulling again at once.

        A server that had lost its scripts may have pulled before it settled what it was `told_of`: that stays out.
        """
        pull.cursor.advance(pulled)
        if pulled.unknown_topics:
            self._topics.learn(pulled.unknown_topics)
        for topic, error in pulled.refused.items():
            if not error.startswith("WRONGTYPE"):  # those are buried
                self._dispatch.refusals.add(topic, error, self._clock.monotonic())
        if pulled.refused:
            self._topics.refuse(self._dispatch.refusals.reasons)
        if self._observer is not None and (pulled.appended or pulled.tickets):
            self._observer.pulled(pulled)
        if self._spans is not None and pulled.traces:
            self._spans.appended(pulled.traces, self._clock.now())
        # A pull that began behind what came back meanwhile may have passed over the elders of a key: it looks again.
        self._dispatch.take(pulled, pulled.now, keyed=not pull.cursor.unread, settled=told_of)
        if pull.fresh:
            self._flood.see_fresh(pulled)
        else:
            self._ramp.see(self._clock.monotonic(), pulled.appended + len(pulled.tickets), more=pulled.more)
            self._look_for_missed(pull, pulled)
            self._next_due = None if pulled.next_due is None else (pulled.next_due, pulled.micro)
            self._flood.see_backlog(pulled)
        if not pull.fresh and self._ramp.holds_for(self._clock.monotonic()):
            return False
        # One that found no room is worth it if something was settled since the room was reckoned.
        return pulled.more and (pulled.last is not None or bool(pulled.unknown_topics) or bool(told_of))

    def _look_for_missed(self, pull: Pull, pulled: Pulled) -> None:
        """Once a second compare what is known with what Redis has, which may have lost or got back anything."""
        if pulled.parked is None:
            return
        self._rescan_at = self._clock.monotonic() + RESCAN
        work = self._dispatch
        if work.flight.missed(pull.start, pulled.start):
            work.flight.offset.rewind(0)
        work.found_sets(pulled.parked)

    @property
    def idle(self) -> bool:
        """Whether nothing waits for a report: what was confirmed makes no room that anything wants."""
        work = self._dispatch
        if self._flood.on or not self._ramp.over or work.flight.offset.unread or work.settlement:
            return False
        return not (work.waiting or work.any_parked or work.lanes.backing_off())

    def pause(self, more: bool) -> float:
        """The ms until the next look, 0 = at once; `more`: something is known to be worth it."""
        work, flood = self._dispatch, self._flood
        now = self._clock.monotonic()
        ramping = self._ramp.holds_for(now)
        # While something waits for room the backlog is not pulled; the report that makes room ends the pause.
        blocked = flood.on and bool(work.waiting or ramping)
        # A rewound offset has something unread behind it; in a flood this turn may have been another queue's.
        unread = work.flight.offset.unread or flood.on
        if more or work.settlement or (unread and not blocked and not ramping):
            return 1 if work.waiting else 0
        longest: float = LONGEST_WAIT - (now + LONGEST_WAIT * self._keys.number // GROUPS) % LONGEST_WAIT
        if work.waiting:
            longest = LATE  # others' reports make room too
        for held in work.lanes.backing_off():
            longest = min(longest, max(1, held.again_at - now))
        if blocked:
            longest = min(longest, flood.fresh_in(now))
        elif self._next_due is not None:
            due, micro = self._next_due
            longest = min(longest, due - self.now() - micro / 1000)
        if ramping:
            longest = min(longest, ramping, LATE + 1)  # by then fresh messages are not to wait with it
        return max(1 if work.waiting else 0, longest)
