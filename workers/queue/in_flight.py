"""The messages of one queue that its owner has in flight: their stages in its memory, and the offset of its pulls.

```text
  accept        its turn          room         the sender reports            Redis answers
 ───────▶ PULLED ─────▶ WAITING ─────▶ SENDING ─────▶ RETURNED ─┬─▶ ACKING ────▶ GONE
             ▲             │ │                            │     ├─▶ SETTLING ──▶ GONE, or with an ordering key BACKING_OFF
             └─────────────┘ │                            │     └─▶ PARKING ───▶ GONE
           sending stops     └────────────────────────────┴─▶ also before a send: expired, or it cannot be sent yet

 PULLED, WAITING, RETURNED, BACKING_OFF ──▶ GONE: dropped. Its place in the queue is unchanged, and the offset moves back to it.
```

`MOVES` is the same diagram as a table. `InFlight` refuses a move that is not in it.

The offset is a place in the queue. Every message before it is in flight or gone, so a dropped message moves the offset back.
A reset drops every message that is not being sent or acked.

Only `InFlight` changes this state, in the thread of the queue's pull job. Other modules make the decisions. `sort` returns
the next step of a pulled message, and `judge` the outcome of a send. A `Share` bounds the messages of a target. A message of a
limited topic waits for its permit at its sender (SENDING).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Final

from delayq.domain.codec import CorruptRecord
from delayq.domain.policies import NO_POLICIES, Policies
from delayq.store.commands import Head, Now, Parked, Pulled, Released
from delayq.store.keys import ParkedSet
from delayq.targets import Result
from workers.queue.cursor import Cursor
from workers.queue.ordering import Lanes
from workers.queue.outcomes import Ack, Bury, Destination, Outcome, Park, Retry, judge, sort
from workers.queue.parked_sets import ParkedSets
from workers.queue.queue_context import QueueContext
from workers.queue.settlement import Corrupt, Settlement, Step
from workers.queue.share import Share
from workers.queue.topics import Stream, Topics, stream_of
from workers.sending.groups import Report
from workers.sending.message import InFlightMessage, Probe, Stage

#: The stages that may follow each stage.
MOVES: Final[Mapping[Stage, frozenset[Stage]]] = {
    Stage.PULLED: frozenset({Stage.WAITING, Stage.SETTLING, Stage.PARKING, Stage.GONE}),
    Stage.WAITING: frozenset({Stage.SENDING, Stage.PULLED, Stage.SETTLING, Stage.PARKING, Stage.GONE}),
    Stage.SENDING: frozenset({Stage.RETURNED}),
    Stage.RETURNED: frozenset({Stage.ACKING, Stage.SETTLING, Stage.PARKING, Stage.GONE}),
    Stage.ACKING: frozenset({Stage.GONE}),
    Stage.SETTLING: frozenset({Stage.BACKING_OFF, Stage.GONE}),
    Stage.PARKING: frozenset({Stage.GONE}),
    Stage.BACKING_OFF: frozenset({Stage.PARKING, Stage.GONE}),
    Stage.GONE: frozenset(),
}
_BEFORE: Final = {stage: frozenset(one for one, after in MOVES.items() if stage in after) for stage in Stage}


class InFlight:
    """The messages in flight under one context. `now` is always Unix ms by the clock of the pulls.

    The senders return messages by `report`, from other threads.
    """

    def __init__(self, context: QueueContext, parked: ParkedSets, topics: Topics, report: Report) -> None:
        self._context = context
        self.parked = parked
        self._topics = topics
        self._report = report
        self._messages: dict[bytes, InFlightMessage] = {}  # by ticket
        self._offset = Cursor()
        self._weight = 0  # of all messages
        self._lanes = Lanes()
        self._reached: Head = (-1, b"")  # no message after this place was ever in flight
        self._settlement = Settlement()
        self._policies = NO_POLICIES
        # The topics of messages that were being sent when a pause began, by ticket.
        self._sending_paused: dict[bytes, str] = {}
        self._stalls = 0  # stalls of the process, counted when this tick began
        bounds, shares = context.bounds, len(context.senders) + 1
        self._unit = max(1, bounds.window_bytes // bounds.window)
        self._shares = {
            name: Share(sender, max(1, bounds.window // shares), parked, self._lanes, report)
            for name, sender in context.senders.items()
        }

    # -- state ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> Mapping[bytes, InFlightMessage]:
        """The messages in flight, by ticket."""
        return MappingProxyType(self._messages)

    @property
    def room(self) -> int:
        """How many more small messages the window has room for."""
        return max(0, self._context.bounds.window - self._weight)

    @property
    def shares(self) -> Mapping[str, Share]:
        """The share of each route that has a target."""
        return MappingProxyType(self._shares)

    @property
    def unread(self) -> bool:
        """Whether the offset was moved back since the last pull."""
        return self._offset.unread

    @property
    def looks_again_from(self) -> int | None:
        """The earliest known due time after the offset among messages that arrived since the last pull."""
        return self._offset.back

    @property
    def waiting(self) -> bool:
        """Whether any message waits for room at its target."""
        return any(share.waiting for share in self._shares.values())

    @property
    def to_settle(self) -> bool:
        """Whether any outcome has not been sent to Redis yet."""
        return bool(self._settlement)

    def to_park(self, name: str) -> bool:
        """Whether a message has yet to be parked under this name."""
        return bool(self._settlement.to_park(name))

    @property
    def busy(self) -> bool:
        """Whether any message is being sent, or its outcome has not been recorded in Redis."""
        return bool(self._settlement) or any(share.sending for share in self._shares.values())

    def has_few_of(self, lane: str) -> bool:
        """Whether few messages of a lane are in flight, so that parked ones may return."""
        return self._lanes.low(lane)

    @property
    def sending_paused(self) -> Mapping[str, int]:
        """The number of messages of each paused topic that are still being sent; any thread may read it."""
        return Counter(list(self._sending_paused.values()))

    @property
    def outstanding(self) -> bool:
        """Whether any message was handed out or parked for its target, and is not confirmed.

        Messages of a target whose circuit is open do not count: they wait for the target, and the circuit reports it.
        """
        return self._settlement.but_parkings or any(
            share.active
            or share.waiting
            or share.parked_set in self.parked
            or self._settlement.to_park(share.parked_set)
            for share in self._shares.values()
            if not share.broken
        )

    @property
    def backs_off_until(self) -> int | None:
        """The monotonic ms at which the next back-off of a message with an ordering key ends."""
        return min((message.again_at for message in self._lanes.backing_off()), default=None)

    def behind(self, place: Head) -> list[bytes]:
        """The tickets in flight that a pull from this place may find and must not hand out again."""
        if place >= self._reached and (not place[1] or place[1] in self._messages):
            return []
        return [ticket for ticket, one in self._messages.items() if one.score >= place[0]]

    @property
    def pulled_up_to(self) -> Head:
        """The place that the pulls from the offset have reached."""
        return self._offset.place

    def misses(self, place: Head, start: int) -> bool:
        """Whether the queue had more tickets before this place (`start`) than are in flight there."""
        return start > sum(1 for one in self._messages.values() if one.place <= place)

    # -- in: pulls -----------------------------------------------------------------------------------------------------

    def begin_pull(self) -> Head:
        """Return the place where a pull from the offset begins."""
        return self._offset.begin_pull()

    def pull_failed(self) -> None:
        """Note that the result of the pull from the offset is unknown."""
        self._offset.pull_failed()

    def rewind(self, due: int) -> None:
        """Move the offset back, so that the next pull begins at `due`."""
        self._offset.rewind(due)

    def accept(self, pulled: Pulled, now: int, settled: Set[bytes] = frozenset(), fresh: Cursor | None = None) -> None:
        """Accept the messages of a pull from the offset or from the cursor `fresh`, and send them.

        A message that has expired by `now` is not sent: the answer may have waited since the pull ran.
        A server that had lost its scripts may have run the pull before the steps of this tick. So the tickets in `settled`,
        which these steps settle, are ignored.
        """
        cursor = self._offset if fresh is None else fresh
        cursor.advance(pulled)
        if pulled.last is not None:
            self._reached = max(self._reached, pulled.last)
        self._describe(pulled.sets)
        # If the offset moved back meanwhile, this pull may have missed earlier messages of a key: the next pull finds both.
        self._take(pulled, now, settled, keyed=not cursor.unread)

    def accept_released(self, released: Released, now: int) -> None:
        """Accept the messages of a release, and send them."""
        self._describe(released.sets)
        # A caller may have moved that message into the queue by `deliverNow`: it is at its place there.
        if released.dropped is not None:
            self.rewind(released.dropped)
            self._offset.unread = True
        if not released.tickets:
            return
        self._reached = max(self._reached, *zip(released.scores, released.tickets, strict=True))
        # An earlier message of the key may be in the queue: this tick may have dropped it. Then a pull returns both, in order.
        keyed = self._offset.has_read(max(released.scores))
        self._take(released, now, frozenset(), keyed=keyed)
        if not keyed:
            self.rewind(min(released.scores))

    def _describe(self, sets: Mapping[str, Parked]) -> None:
        """Store the descriptions of parked sets by Redis, and add the messages that are yet to be parked there."""
        for name, parked in sets.items():
            self.parked.describe(name, parked)
            for message, _ in self._settlement.to_park(name):
                self.parked.expect(name, message.place)

    def _take(self, brought: Pulled | Released, now: int, settled: Set[bytes], *, keyed: bool) -> None:
        if not brought.tickets:
            return
        ready: dict[Share, list[InFlightMessage]] = {}
        gates: dict[Share, bool] = {}
        refused = dict(self._topics.refused)
        for refusing, error in brought.refused.items():
            if (route := self._context.routes.find(refusing)) is not None:
                refused[stream_of(route, refusing)] = error
        for ticket, score, attempts, record in zip(
            brought.tickets, brought.scores, brought.attempts, brought.records, strict=True
        ):
            if ticket in self._messages or ticket in settled:
                continue
            try:
                message = InFlightMessage(ticket, score, attempts, record, brought.now)
                topic = message.topic
            except (CorruptRecord, UnicodeDecodeError) as error:
                self._settlement.add(Corrupt(ticket, score, attempts), Bury(f"corrupt record: {error}"))
                continue
            if message.record.keyed and not keyed:
                continue
            if ticket in brought.let_past:
                message.by_hand, message.by_force = True, brought.let_past[ticket]
            message.released = isinstance(brought, Released)
            message.route = self._context.routes.find(topic)
            self._add(message)
            share = self._route_to_share(message, now, refused, gates)
            if share is not None:
                self._move([message], Stage.WAITING)  # now, so that no other message of its key is sent beside it
                ready.setdefault(share, []).append(message)
        for share, batch in ready.items():
            self._send(share, batch, now)

    def _route_to_share(
        self, message: InFlightMessage, now: int, refused: Mapping[Stream, str], gates: dict[Share, bool]
    ) -> Share | None:
        """Return the share that sends the message now. If None, it waits in its lane, is to be settled, or was dropped."""
        destination = sort(
            message,
            now,
            targets=self._shares,
            refused=refused,
            parked=self.parked,
            lanes=self._lanes,
            policies=self._policies,
            to_park=self.to_park,
        )
        if destination is Destination.PULL_AGAIN:
            self._drop(message)
            return None
        if destination is not Destination.TO_TARGET:
            self._settle(message, destination)
            return None
        share = self._share_of(message)
        if share not in gates:
            gates[share] = share.takes_all()
        if not self._passes(message, share, gates[share]):
            self._settle(message, Park(share.parked_set))
            return None
        return share if not message.record.keyed or self._lanes.enter(message) else None

    def _passes(self, message: InFlightMessage, share: Share, gate: bool) -> bool:
        """Whether the message may be sent now or wait for its turn in its lane."""
        if gate:
            return not (message.record.keyed and share.full_of_lanes)
        message.probe = share.sender.circuit.admits(message, share)
        return bool(message.probe)

    # -- out: to the targets -------------------------------------------------------------------------------------------

    def _send(self, share: Share, batch: list[InFlightMessage], now: int) -> None:
        going = share.fit(batch)
        if self._policies.limited:
            going = self._admit(share, going)
        if going:
            self._move(going, Stage.SENDING)
            share.sender.submit(self._report, going, self._stalls)

    def _admit(self, share: Share, batch: list[InFlightMessage]) -> list[InFlightMessage]:
        """Return the messages that have no limits, and those that may wait at their sender for permits.

        Pulled messages of short limits are parked. The others wait as for room: their permits arrive in a moment.
        """
        longest, now, room = share.sender.longest, self._context.clock.monotonic(), share.room_for_limited
        limits_of, policies = self._context.limits.of, self._policies
        going: list[InFlightMessage] = []
        limited: list[InFlightMessage] = []
        for message in batch:
            limits = message.limits = () if message.by_force else limits_of(message.topic, policies, longest)
            if not message.released and any(limit.is_short(now) for limit in limits):
                self._settle(message, Park(ParkedSet.of_topic(message.topic)))
            else:
                (limited if limits else going).append(message)
        if len(limited) > room:
            room += sum([min([one.permits(now) for one in limits]) for limits in {one.limits for one in limited}])
            share.wait(limited[room:])
        return going + limited[:room]

    def send_waiting(self, now: int) -> None:
        """Send the messages that wait for room.

        Expired messages become dead letters, and stale ones are dropped. If the sender is stuck or the circuit is open, the
        messages are parked, except probes.
        """
        for share in self._shares.values():
            if not share.waiting:
                continue
            batch, share.waiting = share.waiting, []
            fresh = []
            for message in batch:
                if message.stale(now):
                    self._drop(message)
                elif message.expired(now):
                    self._settle(message, Bury("expired"))
                else:
                    fresh.append(message)
            broken = share.broken
            goes = [message for message in fresh if message.probe or not broken]
            fresh = [message for message in fresh if broken and not message.probe]
            if goes:
                self._send(share, goes, now)
                if share.stuck:
                    fresh, share.waiting = fresh + share.waiting, []
            for message in fresh:
                self._settle(message, Park(share.parked_set))
            if not share.waiting:
                share.waiting_since = None

    def _withdrawn(self, share: Share, which: Callable[[InFlightMessage], bool]) -> list[InFlightMessage]:
        """Take back the messages for which `which` is true, unless a sending thread has them."""
        taken = share.sender.withdraw(self._report, which)
        self._move(taken, Stage.RETURNED)  # all of them first: if a later line fails, they are pulled again
        return taken

    # -- back from the targets -----------------------------------------------------------------------------------------

    def sent(self, batch: Sequence[InFlightMessage], results: Sequence[Result], now: int) -> None:
        """Decide the outcome of each message of a sent batch by its result."""
        share = self._returned(batch)
        route, bounds, policies = share.sender.route, self._context.bounds, self._policies
        broken, certain = share.broken, share.sender.circuit.certain
        for message, result in zip(batch, results, strict=True):
            if not self._has(message):
                continue
            if message.probe:
                message.probe = Probe.FREE  # its permit is used up
            outcome = judge(
                message, route, result, now, bounds=bounds, policies=policies, broken=broken, certain=certain
            )
            self._settle(message, outcome)

    def not_sent(self, batch: Sequence[InFlightMessage]) -> None:
        """Drop a batch that was not sent: it stays in the queue, and the owner of the queue pulls it again."""
        self._returned(batch)
        for message in batch:
            if self._has(message):
                self._drop(message)

    def _returned(self, batch: Sequence[InFlightMessage]) -> Share:
        self._move(batch, Stage.RETURNED)  # first: if a later line fails, they are pulled again
        return self._share_of(batch[0])

    # -- settling ------------------------------------------------------------------------------------------------------

    def _settle(self, message: InFlightMessage, outcome: Outcome) -> None:
        """Queue the outcome of a message for Redis. A parked message takes the messages after it in its lane along."""
        if isinstance(outcome, Park):
            for one in self._lanes.clear_from(message):
                if one.by_force and ParkedSet.is_of_topic(outcome.name):  # no pause or limit holds it
                    self._forget(one)
                    self.rewind(one.score)
                else:
                    self._park(one, outcome)
            return
        if isinstance(outcome, Retry):
            message.pause = outcome.pause
        self._move([message], Stage.ACKING if isinstance(outcome, Ack) else Stage.SETTLING)
        self._settlement.add(message, outcome)

    def _park(self, message: InFlightMessage, outcome: Park) -> None:
        if not ParkedSet.is_of_topic(outcome.name):  # pulls check the sets of topics themselves
            self.parked.expect(outcome.name, message.place)  # from now on later messages wait behind it
        self._move([message], Stage.PARKING)
        self._settlement.add(message, outcome)

    def steps(self, now: Now) -> list[Step]:
        """The steps to send to Redis now."""
        return self._settlement.steps(self._context, now)

    def answered(self, step: Step, answer: Any, now: int) -> bool:
        """Process the answer to a step. Returns True if this epoch has ended."""
        self._settlement.answered(step)
        messages = [message for message, _ in step.entries]
        if step.outcome is Ack:
            for message in messages:
                self._forget(message)
            fenced = not answer[0]
            # Messages were cancelled meanwhile, or Redis went back in time. Then parked sets may be as they were before.
            if answer[1] < len(messages):
                self.parked.read_again()
            for message in messages if not fenced else ():
                self._leave_lane(message, now)
            self._context.observer.acked(messages, now)
            return fenced
        if answer is None:
            return True
        if step.outcome is Park:
            self._describe({step.name: answer})
            for message in messages:
                self._forget(message)
            return False
        for (message, outcome), status in zip(step.entries, answer, strict=True):
            if not isinstance(message, Corrupt):
                self._answered_failed(message, outcome, status, now)
        return False

    def _answered_failed(self, message: InFlightMessage, outcome: Retry | Bury, status: str, now: int) -> None:
        if status == "changed":
            self._drop(message)  # a caller changed it meanwhile: pull it again
        elif isinstance(outcome, Retry) and status == "ok" and outcome.due is None:
            self._move([message], Stage.BACKING_OFF)
            message.attempts += 1
            message.again_at = self._context.clock.monotonic() + message.pause
        else:
            self._forget(message)
            self._leave_lane(message, now)
        if isinstance(outcome, Retry) and outcome.due is not None:
            self.rewind(outcome.due)  # it is after the offset, unless the clock was set back since the pull

    def observe_sets(self, names: Iterable[str], *, every: bool) -> None:
        """Store the list of parked sets from Redis: with the sets of topics if `every`, else without them."""
        self.parked.read(names, self._context.clock.monotonic(), every=every, pending=self._settlement.names)

    # -- pulled again --------------------------------------------------------------------------------------------------

    def drop_backed_off(self) -> None:
        """Drop the messages with an ordering key whose back-off has ended, so that they are pulled again."""
        for message in self._lanes.backing_off():
            if message.again_at <= self._context.clock.monotonic():
                self._drop(message)

    def drop_stale(self, now: int) -> None:
        """Drop messages that have waited for their limits for long, so that they are pulled again."""
        for share in self._shares.values():
            for message in self._withdrawn(share, lambda one: one.stale(now)) if share.limited else ():
                self._drop(message)

    def stop_sending(self, *, fenced: bool) -> None:
        """Stop sending: unsent messages stay in the queue for the next owner, and confirmed ones are acked."""
        if fenced:
            self._settlement.keep_acks_only()
        for share in self._shares.values():
            self._withdrawn(share, lambda _: True)
            self._move(share.waiting, Stage.PULLED)
            share.waiting, share.waiting_since = [], None

    def reset(self) -> None:
        """Drop every message that is not being sent or acked, after an unexpected error. They are pulled again.

        Messages that were about to be parked may be parked already, so their sets stay known.
        """
        self.stop_sending(fenced=True)
        self._lanes.clear()
        for message in list(self._messages.values()):
            if message.stage not in (Stage.SENDING, Stage.ACKING):
                self._drop(message)
            elif message.record.keyed:
                self._lanes.enter(message)
        self.rewind(0)

    def observe_policies(self, policies: Policies) -> None:
        """Apply new policies: drop the messages that these pause, unless a thread sends them or has sent them.

        The next pull finds dropped messages again and parks them. Messages that wait for a limit are dropped, too: they may
        have another limit now.
        """
        self._policies = policies
        self.parked.observe_policies(policies)
        for share in self._shares.values():
            for message in self._withdrawn(
                share, lambda one: bool(one.limits) or policies.pause(one.topic) is not None
            ):
                self._drop(message)
        self._sending_paused = {}
        if not policies.pauses:
            return
        for share in self._shares.values():
            share.waiting = [one for one in share.waiting if policies.pause(one.topic) is None]
            share.waiting_since = share.waiting_since if share.waiting else None
        for message in list(self._messages.values()):
            if not self._has(message) or policies.pause(message.topic) is None:
                continue
            if message.stage is Stage.SENDING:
                self._sending_paused[message.ticket] = message.topic
            elif message.stage in (Stage.PULLED, Stage.WAITING, Stage.RETURNED, Stage.BACKING_OFF):
                self._drop(message)

    def observe_stalls(self, stalls: int) -> None:
        """Reset if the process has stalled again: other nodes may own the messages that are not being sent."""
        if stalls != self._stalls:
            self._stalls = stalls
            self.reset()

    def _drop(self, message: InFlightMessage) -> None:
        """Forget an unsettled message and the messages after it in its lane: they are pulled again, in order."""
        for one in self._lanes.clear_from(message):
            self._forget(one)
            self.rewind(one.score)

    def _leave_lane(self, message: InFlightMessage, now: int) -> None:
        """Send the next message of the key, after Redis has recorded the outcome of this one."""
        if not message.record.keyed:
            return
        following = self._lanes.leave(message)
        if following is None:
            return
        share = self._share_of(following)
        if following.stale(now):
            self._drop(following)  # it may have been cancelled meanwhile
        elif following.expired(now):
            self._settle(following, Bury("expired"))
        elif self._passes(following, share, share.takes_all()):
            self._move([following], Stage.WAITING)
            self._send(share, [following], now)
        else:
            self._settle(following, Park(share.parked_set))

    # -- moves and counts ----------------------------------------------------------------------------------------------

    def _move(self, batch: Sequence[InFlightMessage], to: Stage) -> None:
        """Move messages to the next stage, and count the weight being sent. A batch that is sent has one route."""
        before = _BEFORE[to]
        for message in batch:
            if message.stage not in before:
                raise AssertionError(f"a message moved from {message.stage.value} to {to.value}")
            message.stage = to
        if to is Stage.SENDING:
            self._share_of(batch[0]).sending += sum([message.weight for message in batch])
        elif to is Stage.RETURNED and batch:
            self._share_of(batch[0]).sending -= sum([message.weight for message in batch])
            for message in batch if self._sending_paused else ():
                self._sending_paused.pop(message.ticket, None)

    def _has(self, message: InFlightMessage) -> bool:
        """Whether this very object is still in flight under its ticket."""
        return self._messages.get(message.ticket) is message

    def _add(self, message: InFlightMessage) -> None:
        self._messages[message.ticket] = message
        message.weight = 1 + message.size // self._unit
        self._weight += message.weight

    def _forget(self, message: InFlightMessage) -> None:
        if self._has(message):
            self._move([message], Stage.GONE)
            del self._messages[message.ticket]
            self._weight -= message.weight
            if message.probe is Probe.PERMITTED:
                message.probe = Probe.NONE
                self._share_of(message).sender.circuit.return_permit()

    def _share_of(self, message: InFlightMessage) -> Share:
        """The share of a message that has a target."""
        assert message.route is not None
        return self._shares[message.route.name]
