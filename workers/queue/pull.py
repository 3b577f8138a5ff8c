"""The pulls of one queue: where they begin, how much they take, and when the next one is due."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

import msgspec

from delayq.base.errors import StoreError, StoreFull, StoreUnavailable
from delayq.domain.policies import Policies
from delayq.store import commands
from delayq.store.commands import Command, Head, Listed, Now, Outdated, Pulled, Released
from workers.queue.cursor import Cursor, Flood
from workers.queue.in_flight import InFlight
from workers.queue.queue_context import QueueContext
from workers.queue.topics import APPENDED_AT_ONCE, Topics

#: The bytes of messages that a pull asks for. A failed pull halves them, because the network may be too slow for its answer.
MOST_BYTES: Final = 8 * 1024 * 1024
LEAST_BYTES: Final = 16 * 1024
#: A time of the precise monotonic clock that is always past.
AT_ONCE: Final = 0.0
#: The longest time (ms) between two pulls of a queue, because a wake may be lost. All queues of a node pull at the same
#: moment, because one packet costs less than one for each.
LONGEST_WAIT: Final = 1_000
#: ms after which messages that wait for room are checked without a report, because other queues make room, too.
ROOM_WAIT: Final = 20
#: ms in which a pull reaches Redis. If the answer takes longer, Redis was busy, or the answer was not read at once.
TRIP: Final = 2


class Pull(msgspec.Struct, frozen=True):
    """A pull and its start. A pull of fresh messages has their place instead of the offset."""

    start: Head
    fresh: Cursor | None
    command: Command[Pulled | Outdated | None]
    every: bool  # it reads the names of all parked sets, also of topics


class Pulling:
    """Pulls one queue under one epoch: the backlog, and in a flood the fresh messages beside it."""

    def __init__(
        self,
        context: QueueContext,
        in_flight: InFlight,
        topics: Topics,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._topics = topics
        self._clock = context.clock
        self._flood = Flood()
        self._look = min(context.bounds.look, APPENDED_AT_ONCE) if topics.local else context.bounds.look
        self.in_backlog = False  # more is due, and there is room for some of it
        self._more_due = False
        self._read_all = False  # the last pull came to the end of what was due
        self._most_bytes = MOST_BYTES
        self._now_offset: int | None = None  # the time of the last pull minus the monotonic clock
        # The same for the clock of Redis, by which permits end.
        self._redis_offset = self._clock.now() - self._clock.monotonic()
        # Times of the precise monotonic clock:
        self._set_off = 0.0  # the start of the last pulls
        self._unix_0 = 0.0  # the time 0 of the clock of pulls
        self._next_due_at: float | None = None
        self._look_by = AT_ONCE

    def now(self) -> int:
        """Unix ms by the clock of the last pull."""
        if self._now_offset is None:
            return self._clock.now()
        return self._clock.monotonic() + self._now_offset

    # -- streams that take nothing -----------------------------------------------------------------------------------

    def streams_to_ask(self, *, every: bool) -> dict[str, Command[str]]:
        """The commands that try streams in this Redis, by topic: streams that refused messages, or all known ones."""
        topics = list(self._topics.appended) if every else self._topics.to_ask(self._clock.monotonic())
        streams = {topic: self._topics.stream(topic, self._context.keys) for topic in topics}
        return {topic: commands.takes(stream) for topic, stream in streams.items() if stream is not None}

    def record_stream(self, topic: str, answer: str | StoreError) -> bool:
        """Note whether a topic's stream accepts messages; True if that has changed."""
        if isinstance(answer, (StoreUnavailable, StoreFull)):
            return False  # the answer is unknown
        if reason := str(answer):
            return self._topics.refuse(topic, reason)
        if (name := self._topics.take_again(topic)) is None:
            return False
        self._in_flight.parked.empty(name)
        return True

    # -- before a pull -----------------------------------------------------------------------------------------------

    def rewind(self, due: int) -> None:
        """Pull again all messages that are due at `due` or later."""
        self._in_flight.rewind(due)
        self._flood.fresh.rewind(due)

    def observe_policies(self, policies: Policies) -> None:
        """Use these policies from now on."""
        self._topics.observe_policies(policies)

    def look(self) -> None:
        """Pull at the next chance, because a wake may have been lost."""
        self._look_by = AT_ONCE

    @property
    def fresh_in(self) -> int | None:
        """The ms until the next pull of fresh messages beside the backlog; None if there is no flood."""
        return self._flood.fresh_in(self._clock.monotonic()) if self._flood.on else None

    def pulls(self, now: Now, version: str, *, backlog: bool) -> list[Pull]:
        """The pulls that are due now under this version of the policies. Without `backlog` they take only fresh messages."""
        pulls = []
        self._set_off = self._clock.precise()
        if self._in_flight.waiting:
            self._flood.backlog_waits(self.now())
        elif backlog and (self._flood.on or self._set_off >= self._pull_at()):
            pulls.append(self._pull(now, version))
        if self.fresh_in == 0:
            pulls.append(self._pull(now, version, self._flood.begin_fresh(self._clock.monotonic())))
        return pulls

    def _pull_at(self, slack: int = 0) -> float:
        """The time of the next pull of the backlog.

        It is now if more messages are due or the offset moved back. Otherwise it is `slack` ms after the next due time. A second
        after the last pull is the latest time, because a wake may be lost.
        """
        if self.in_backlog or self._in_flight.unread:
            return AT_ONCE
        at = self._look_by
        if self._next_due_at is not None:
            at = min(at, self._next_due_at + slack)
        if (due := self._in_flight.looks_again_from) is not None:
            at = min(at, self._unix_0 + due + slack)
        return at

    def _pull(self, now: Now, version: str, fresh: Cursor | None = None) -> Pull:
        context, in_flight = self._context, self._in_flight
        listed = fresh is None and self._clock.precise() >= self._look_by
        every = listed and in_flight.parked.reads_all(self._clock.monotonic())
        start = due, behind = in_flight.begin_pull() if fresh is None else fresh.begin_pull()
        return Pull(
            start,
            fresh,
            commands.pull(
                context.keys,
                context.incarnation.name,
                offset=due,
                behind=behind,
                room=min(self._look, in_flight.room),
                look=self._look,
                most_bytes=self._most_bytes,
                fresh=fresh is not None,
                known=self._topics.known(context.keys),
                without_permits=self._topics.without_permits(context.limits, self._clock.monotonic()),
                in_memory=in_flight.behind(start),
                unlisted_general=self._topics.unlisted_general,
                node_now=self._clock.now(),
                now=now,
                retention=context.retention,
                traced=context.spans is not None,
                listed=Listed.ALL if every else Listed.BUT_TOPICS if listed else Listed.NONE,
                version=version,
            ),
            every,
        )

    def by_redis(self, monotonic: int) -> int:
        """A time of the monotonic clock by the clock of Redis (Unix ms)."""
        return monotonic + self._redis_offset

    # -- after a pull ------------------------------------------------------------------------------------------------

    def see_clock(self, answers: Sequence[Pulled | Outdated | StoreError | None]) -> None:
        """Set the clock of pulls by their answers, which have the earlier time of both clocks.

        An answer may have been unread for a while. So its time counts from the start of the pulls.
        """
        for answer in answers:
            if isinstance(answer, Pulled):
                self._now_offset = answer.now - int(self._set_off)
                self._redis_offset = self._now_offset + answer.ahead
                self._unix_0 = min(self._clock.precise(), self._set_off + TRIP) - answer.now - answer.micro / 1000

    @property
    def read_up_to(self) -> Head | None:
        """The place up to which pulls have read what is due; None if they have read all of it."""
        in_flight = self._in_flight
        everything = self._read_all and not in_flight.unread and in_flight.looks_again_from is None
        return None if everything else in_flight.pulled_up_to

    def failed(self, pull: Pull) -> None:
        """Note that the result of a pull is unknown, and ask for fewer bytes."""
        self._most_bytes = max(LEAST_BYTES, self._most_bytes // 2)
        self.took_nothing(pull)

    def took_nothing(self, pull: Pull) -> None:
        """Note that a pull took nothing, so that it is repeated."""
        (self._in_flight if pull.fresh is None else pull.fresh).pull_failed()
        self._read_all = False

    def take(self, pull: Pull, pulled: Pulled, settled: Set[bytes]) -> None:
        """Accept pulled messages, except those that this tick has `settled`."""
        self._most_bytes = min(MOST_BYTES, self._most_bytes * 2)
        if pulled.unknown_topics:
            self._topics.learn(pulled.unknown_topics)
        self._see(pulled)
        self._in_flight.accept(pulled, min(self.now(), self._clock.now()), settled, pull.fresh)
        if pull.fresh is not None:
            self._flood.record_fresh(pulled)
            return
        self._look_for_missed(pull, pulled)
        self._flood.record_backlog(pulled)
        self._more_due = pulled.more
        self._read_all = not pulled.more
        self.in_backlog = pulled.more and (pulled.last is not None or bool(pulled.unknown_topics))
        self._next_due_at = None if pulled.next_due is None else self._unix_0 + pulled.next_due

    def _see(self, brought: Pulled | Released) -> None:
        """Note which streams refuse messages, and report what came."""
        spans = self._context.spans
        for topic, error in brought.refused.items():
            if not error.startswith("WRONGTYPE"):  # their messages are buried
                self._topics.refuse(topic, error)
        if brought.appended or brought.tickets:
            self._context.observer.pulled(brought)
        if spans is not None and brought.traces:
            spans.appended(brought.traces, self._clock.now())

    def take_released(self, released: Released) -> None:
        """Accept messages that a release took out of parked sets."""
        self._see(released)
        self._in_flight.accept_released(released, min(self.now(), self._clock.now()))

    def room_made(self) -> None:
        """Note that messages have left the window, so that due messages find room."""
        self.in_backlog = self.in_backlog or self._more_due

    def _look_for_missed(self, pull: Pull, pulled: Pulled) -> None:
        """Compare the known queue with Redis once a second, because Redis may have lost or regained messages."""
        if pulled.parked is None:
            return
        monotonic = self._clock.monotonic()
        self._look_by = float(monotonic - monotonic % LONGEST_WAIT + LONGEST_WAIT)
        if self._in_flight.misses(pull.start, pulled.start):
            self._in_flight.rewind(0)
        self._in_flight.observe_sets(pulled.parked, every=pull.every)
        self._in_flight.drop_stale(self.now())

    def looks_at(self, *, at_once: bool) -> float:
        """When to look again, by the precise monotonic clock.

        While a message waits for room, only fresh messages are pulled. A report of a sender ends the wait.
        """
        in_flight, now = self._in_flight, self._clock.precise()
        waits = in_flight.waiting
        soonest = now + 1 if waits else AT_ONCE
        worth = (self.in_backlog or in_flight.unread) and not (waits and self._flood.on)
        if at_once or in_flight.to_settle or worth:
            return soonest
        at = now + ROOM_WAIT if waits else self._pull_at(self._context.routes.slack)
        if (fresh_in := self.fresh_in) is not None:
            at = min(at, now + fresh_in)
        if (again_at := in_flight.backs_off_until) is not None:
            at = min(at, max(now + 1, again_at))
        return max(soonest, at)
