"""The messages of one queue that its owner has in flight: their life in its memory, and the offset it pulls from.

```text
  accept        its turn          room          sent: its target has answered     answered: Redis has
 ───────▶ PULLED ─────▶ WAITING ──────▶ SENDING ─┬─▶ ACKING ───────────────────────▶ gone
            │              │               │     ├─▶ SETTLING: to retry or bury ───▶ gone, or with an ordering key:
            │ expired,     │ held up       │     │                                   BACKING_OFF
            │ or held up   │               │     │                                        │
            ├──────────────┴───────────────┼─────┴─▶ PARKING ──────────────────────▶ gone │
            │ it has waited, or a reset    │ not sent after all                           │ the pause is over
            ▼                              ▼                                              ▼
            dropped: it stands in the queue as before, and the offset goes back to it
```

Everything before the offset, a place in the queue, is in flight or gone. So a message that is dropped moves it back.
A reset drops all but what is being sent or acked.

All that changes here is changed by the methods of `InFlight`, in the thread of the queue's pull job; a slot in the thread that
passes it on. What decides is elsewhere: `sort` says where a pulled message goes, `judge` what becomes of one that was sent,
a `Share` how many may go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from delayq.codec import CorruptRecord
from delayq.policies import NO_POLICIES, Bucket, Policies, Slots
from delayq.store.commands import Head, Now, Parked, Pulled
from delayq.store.keys import ParkedSet
from delayq.targets import Result
from workers.queue.cursor import Cursor
from workers.queue.grants import Grants, Want, count_of
from workers.queue.offers import Leave, Offer
from workers.queue.ordering import Lanes
from workers.queue.parked_sets import ParkedSets
from workers.queue.settlement import Ack, Bury, Corrupt, Fate, Park, Retry, Settlement, Step, Way, judge, sort
from workers.queue.share import Share
from workers.queue.tenure import Tenure
from workers.queue.topics import Refusals, Stream, stream_of
from workers.sending.forwarder import Forwarder, Report
from workers.sending.message import Grant, InFlightMessage, Slot, Stage

__all__ = ["InFlight"]

T = TypeVar("T")


class InFlight:
    """The messages in flight under one tenure. `now` is always Unix ms by the clock that pulls go by.

    What is sent comes back by `report`, from another thread.
    """

    def __init__(self, tenure: Tenure, parked: ParkedSets, refusals: Refusals, grants: Grants, report: Report) -> None:
        self._tenure = tenure
        self._parked = parked
        self._refusals = refusals
        self._grants = grants
        self._report = report
        self._messages: dict[bytes, InFlightMessage] = {}  # by ticket
        self._offset = Cursor()
        self._size = 0  # bytes of all of them
        self._lanes = Lanes()
        self._settlement = Settlement()
        self._policies = NO_POLICIES
        self._leaving: dict[bytes, str] = {}  # by ticket the topics of what was being sent when it was paused
        self._pauses = 0  # of the process, when this tick began
        bounds, shares = tenure.bounds, len(tenure.forwarders) + 1
        self._shares = {
            name: Share(forwarder, max(1, bounds.window // shares), bounds.window_bytes // shares, parked, self._lanes)
            for name, forwarder in tenure.forwarders.items()
        }

    # -- what there is -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> Mapping[bytes, InFlightMessage]:
        """What is in flight, by ticket."""
        return MappingProxyType(self._messages)

    @property
    def room(self) -> int:
        """How many messages more the window has room for."""
        bounds = self._tenure.bounds
        return max(0, bounds.window - len(self._messages)) if self._size < bounds.window_bytes else 0

    @property
    def shares(self) -> Mapping[str, Share]:
        """What each route that has a target has of it."""
        return MappingProxyType(self._shares)

    @property
    def unread(self) -> bool:
        """Whether the offset was moved back since the last pull."""
        return self._offset.unread

    @property
    def looks_again_from(self) -> int | None:
        """The earliest due behind the offset of what has come since the last pull, as far as is known."""
        return self._offset.back

    @property
    def waiting(self) -> bool:
        """Whether anything waits for room at its target."""
        return any(share.waiting for share in self._shares.values())

    @property
    def to_settle(self) -> bool:
        """Whether Redis has yet to be told of anything."""
        return bool(self._settlement)

    def to_park(self, name: str) -> bool:
        """Whether something is yet to be parked under this name."""
        return bool(self._settlement.to_park(name))

    @property
    def busy(self) -> bool:
        """Whether anything is being sent, or Redis has yet to be told of it."""
        return bool(self._settlement) or any(share.sending for share in self._shares.values())

    @property
    def parked_for_targets(self) -> bool:
        """Whether anything is parked that comes back when there is room."""
        return any(share.aside in self._parked for share in self._shares.values())

    @property
    def leaving(self) -> Mapping[str, int]:
        """By topic, how many messages may arrive yet though they are paused; any thread may ask."""
        return Counter(list(self._leaving.values()))

    @property
    def outstanding(self) -> bool:
        """Whether anything was handed out, or set aside for its target, and is not confirmed.

        Messages of a target whose circuit is open do not count: they wait for the target, and its circuit tells so.
        """
        return self._settlement.but_parkings or any(
            share.sending or share.waiting or share.aside in self._parked or self._settlement.to_park(share.aside)
            for share in self._shares.values()
            if not share.broken
        )

    @property
    def backs_off_until(self) -> int | None:
        """When the next back-off of a message with an ordering key is over (monotonic ms)."""
        return min((message.again_at for message in self._lanes.backing_off()), default=None)

    def last_at_offset(self) -> bytes:
        """The last ticket in flight at the offset's due, up to the offset: where to go on if the last one seen is gone."""
        due, upto = self._offset.place
        if not upto or upto in self._messages:
            return b""
        return max((t for t, one in self._messages.items() if one.score == due and t <= upto), default=b"")

    def misses(self, place: Head, start: int) -> bool:
        """Whether more stood in the queue before a pull from this place (`start` tickets) than is in flight."""
        return start > sum(1 for one in self._messages.values() if one.place <= place)

    # -- in: pulled --------------------------------------------------------------------------------------------------

    def begin_pull(self) -> Head:
        """A pull from the offset is on its way."""
        return self._offset.begin_pull()

    def pull_failed(self) -> None:
        """Nobody knows what the pull from the offset took."""
        self._offset.pull_failed()

    def rewind(self, due: int) -> None:
        """Look again at everything from `due` on."""
        self._offset.rewind(due)

    def accept(self, pulled: Pulled, now: int, settled: Set[bytes] = frozenset(), fresh: Cursor | None = None) -> None:
        """Take what a pull from the offset, or from the place of what is `fresh`, has brought, and send it on its way.

        What has expired until `now` is not sent: the answer may have waited since the pull ran.
        A server that had lost its scripts may have pulled before it settled what this tick told it: `settled` stays out.
        """
        cursor = self._offset if fresh is None else fresh
        cursor.advance(pulled)
        if not pulled.tickets:
            return
        # A pull that began behind what came back meanwhile may have passed over the elders of a key: it looks again.
        keyed = not cursor.unread
        ready: dict[Share, list[InFlightMessage]] = {}
        gates: dict[Share, bool] = {}
        refused = dict(self._refusals.reasons)
        for refusing, error in pulled.refused.items():
            if (route := self._tenure.routes.find(refusing)) is not None:
                refused[stream_of(route, refusing)] = error
        for ticket, score, attempts, record in zip(
            pulled.tickets, pulled.scores, pulled.attempts, pulled.records, strict=True
        ):
            if ticket in self._messages or ticket in settled:
                continue
            try:
                message = InFlightMessage(ticket, score, attempts, record, pulled.now)
                topic = message.topic
            except (CorruptRecord, UnicodeDecodeError) as error:
                self._settlement.add(Corrupt(ticket, score, attempts), Bury(f"corrupt record: {error}"))
                continue
            if message.record.keyed and not keyed:
                continue
            if ticket in pulled.let_past:
                message.by_hand, message.by_force = True, pulled.let_past[ticket]
            message.route = self._tenure.routes.find(topic)
            self._add(message)
            share = self._goes(message, now, refused, gates)
            if share is not None:
                message.stage = Stage.WAITING  # from now on, so that none of its key sets off beside it
                ready.setdefault(share, []).append(message)
        for share, batch in ready.items():
            self._send(share, batch, now)

    def _goes(
        self, message: InFlightMessage, now: int, refused: Mapping[Stream, str], gates: dict[Share, bool]
    ) -> Share | None:
        """The share in which it goes to its target now. It waits in its lane else, is to be settled, or was dropped."""
        way = sort(
            message,
            now,
            targets=self._shares,
            refused=refused,
            parked=self._parked,
            lanes=self._lanes,
            policies=self._policies,
            spare=self._has_spare,
            awaits=self._awaits_grant,
        )
        if way is Way.PULL_ANEW:
            self._drop(message)
            return None
        if way is not Way.TO_TARGET:
            self._settle(message, way)
            return None
        share = self._share_of(message)
        if share not in gates:
            gates[share] = share.gate()
        if not self._passes(message, share, gates[share]):
            if share.room_bytes < 0:
                share.crowded([message])
            self._settle(message, Park(share.aside))
            return None
        return share if not message.record.keyed or self._lanes.enter(message) else None

    def _awaits_grant(self, message: InFlightMessage) -> bool:
        """Whether one that goes to a stream here is pulled anew as soon as its bucket has answered."""
        bucket, now = self._policies.bucket(message.topic), self._tenure.clock.monotonic()
        return bucket is not None and self._grants.awaits(Want(bucket, 1, message.place), now)

    def _has_spare(self, topic: str) -> bool:
        """Whether what limits a topic has something besides what is for messages that stand aside."""
        bucket, slots, now = self._policies.bucket(topic), self._policies.slots(topic), self._tenure.clock.monotonic()
        if slots is not None and not self._grants.slots.spare(slots, now):
            return False
        return bucket is None or self._grants.spare(bucket, now)

    def _passes(self, message: InFlightMessage, share: Share, gate: bool) -> bool:
        """Whether it may go to its target now, or wait for its turn in its lane."""
        if gate:
            return not (message.record.keyed and share.full_of_lanes)
        if not (message.probe or message.by_hand):
            message.permitted = share.takes_permit()
        message.probe = message.probe or message.by_hand or message.permitted or share.may_try(message.id)
        return message.probe

    # -- out: to the targets -----------------------------------------------------------------------------------------

    def _send(self, share: Share, batch: list[InFlightMessage], now: int) -> None:
        for message in batch:
            message.stage = Stage.WAITING
        going = admitted = share.admit(batch)
        waits: list[InFlightMessage] = []
        offered = set[InFlightMessage]()
        if going and self._policies.slotted:
            going, lacking = self._with_slots(share, going)
            if lacking:
                waits += self._wait_for_slots(share, lacking, now, offered)
        if going and self._policies.limited:
            going, lacking_grants = self._with_grants(going)
            if lacking_grants:
                waits += self._wait_for_grants(share, lacking_grants, now, offered)
        if len(going) + len(offered) < len(admitted):
            share.returned(0)  # what found room leaves it again
        if going:
            for message in going:
                message.stage, message.permitted = Stage.SENDING, False
            share.sends(len(going))
            share.forwarder.submit(self._report, going, self._pauses)
        if len(going) < len(admitted):  # last: should it fail, what goes has gone, and the others are pulled anew
            share.wait(waits)
            stay = {*going, *waits, *offered}
            for message in admitted:
                if message not in stay:
                    self._settle(message, Park(ParkedSet.of_topic(message.topic)))

    def _with_slots(
        self, share: Share, batch: list[InFlightMessage]
    ) -> tuple[list[InFlightMessage], dict[Slots, list[InFlightMessage]]]:
        """Those of a batch, which found room, that have a slot, or need none, and those that lack one."""
        limits, wanted = _limits(batch, self._policies.slots)
        pool, now, longest = self._grants.slots, self._tenure.clock.monotonic(), share.forwarder.longest
        taken = {slots.name: pool.take(slots, count, longest, now) for slots, count in wanted.items()}
        going: list[InFlightMessage] = []
        lacking: dict[Slots, list[InFlightMessage]] = {}
        for message, slots in zip(batch, limits, strict=True):
            if slots is not None and not taken[slots.name]:
                lacking.setdefault(slots, []).append(message)
                continue
            if slots is not None:
                message.slot = taken[slots.name].pop()
            going.append(message)
        return going, lacking

    def _wait_for_slots(
        self, share: Share, lacking: Mapping[Slots, list[InFlightMessage]], now: int, offered: set[InFlightMessage]
    ) -> list[InFlightMessage]:
        """Note which are `offered`; those that wait until others were asked for."""
        pool, forwarder, monotonic = self._grants.slots, share.forwarder, self._tenure.clock.monotonic()
        waits: list[InFlightMessage] = []
        for slots, some in lacking.items():
            alone = [one for one in some if self._policies.bucket(one.topic) is None]  # a grant is taken when it goes
            self._offer(share, alone, now, partial(pool.offer, slots), offered)
            left = [message for message in some if message not in offered]
            if left and pool.awaits(slots, len(left), min(one.place for one in left), forwarder.longest, monotonic):
                waits += left
        return waits

    def _wait_for_grants(
        self, share: Share, lacking: Mapping[Bucket, list[InFlightMessage]], now: int, offered: set[InFlightMessage]
    ) -> list[InFlightMessage]:
        """As for slots. Those that have one give it back: it would stand idle."""
        waits: list[InFlightMessage] = []
        for bucket, some in lacking.items():
            self._give_back(some)
            self._offer(share, some, now, partial(self._grants.offer, bucket), offered)
            left = [message for message in some if message not in offered]
            if left:
                want = Want(bucket, len(left), min(message.place for message in left))
                waits += left if self._grants.awaits(want, self._tenure.clock.monotonic()) else []
        return waits

    def _offer(
        self,
        share: Share,
        batch: Sequence[InFlightMessage],
        now: int,
        offer: Callable[[Sequence[Offer], int], int],
        offered: set[InFlightMessage],
    ) -> None:
        """The first of them go as soon as there is leave for them, in whichever thread, so they count as sent from now on."""
        if share.broken or not batch:
            return
        monotonic = self._tenure.clock.monotonic()
        offers = [
            Offer(
                one,
                share.forwarder,
                self._pauses,
                monotonic + one.good_for(now),
                self._policies.slots(one.topic),
                self._go,
            )
            for one in batch
        ]
        for one in offers[: offer(offers, monotonic)]:
            one.message.stage = Stage.SENDING
            offered.add(one.message)
            share.sends(1)

    def _not_offered(self, which: Callable[[InFlightMessage], bool] = lambda _: True) -> Iterable[InFlightMessage]:
        """Such messages that wait for leave to be sent do so no more."""
        taken_back = [*self._grants.slots.take_back(which), *self._grants.take_back(which)]
        for message in taken_back:
            self._share_of(message).returned(int(message.stage is Stage.SENDING))
            message.stage = Stage.PULLED  # all of them first: should what follows fail, they are pulled anew
        return taken_back

    def _go(self, forwarder: Forwarder, batch: Sequence[tuple[InFlightMessage, Leave]], pauses: int) -> None:
        """There is leave for messages that were offered, in whichever thread."""
        for message, (grant, slot) in batch:
            message.grant, message.slot = grant, slot
        forwarder.submit(self._report, [message for message, _ in batch], pauses)

    def ended(self, batch: Iterable[InFlightMessage]) -> None:
        """The sends of these messages have ended: others go by their slots. In the thread that tells so, and before it does."""
        if slots := _slots_of(batch):
            self._grants.slots.pass_on(slots, self._tenure.clock.monotonic())

    def _give_back(self, batch: Iterable[InFlightMessage]) -> None:
        """The slots of messages that are not sent after all."""
        if slots := _slots_of(batch):
            self._grants.slots.give_back(slots, self._tenure.clock.monotonic())

    def _with_grants(
        self, batch: list[InFlightMessage]
    ) -> tuple[list[InFlightMessage], dict[Bucket, list[InFlightMessage]]]:
        """Those of a batch, which found room, that may go by the rates of their topics, and those that lack a grant."""
        limits, wanted = _limits(batch, self._policies.bucket)
        now = self._tenure.clock.monotonic()
        taken = {bucket.name: self._grants.take(bucket, count, now) for bucket, count in wanted.items()}
        left = {name: count_of(leases) for name, leases in taken.items()}
        grants = {
            bucket.name: Grant(bucket, min(until for until, _ in taken[bucket.name]))
            for bucket in wanted
            if taken[bucket.name]
        }
        going: list[InFlightMessage] = []
        lacking: dict[Bucket, list[InFlightMessage]] = {}
        for message, bucket in zip(batch, limits, strict=True):
            if bucket is not None:
                if not left[bucket.name]:
                    lacking.setdefault(bucket, []).append(message)
                    continue
                left[bucket.name] -= 1
                message.grant = grants[bucket.name]
            going.append(message)
        return going, lacking

    def send_waiting(self, now: int) -> None:
        """Send what waits for room, unless it has expired; park what waits at a forwarder that finishes nothing, or for a target
        that is held for broken, but for probes of it; drop what has grown stale."""
        if self._policies.limited:
            self._try_limited_again(now)
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
                self._settle(message, Park(share.aside))
            if not share.waiting:
                share.waiting_since = None

    def _try_limited_again(self, now: int) -> None:
        self._grants.lacks_nothing()
        for message in self._not_offered(lambda one: one.stale(now) or one.expired(now) or self._share_of(one).broken):
            share = self._share_of(message)
            if message.stale(now):
                self._drop(message)
            else:
                self._settle(message, Bury("expired") if message.expired(now) else Park(share.aside))

    # -- back: from the targets --------------------------------------------------------------------------------------

    def sent(self, batch: Sequence[InFlightMessage], results: Sequence[Result], now: int) -> None:
        """A batch was sent: decide what becomes of each message by its result."""
        share = self._returned(batch)
        route, bounds, policies = share.forwarder.route, self._tenure.bounds, self._policies
        broken, certain = share.broken, share.forwarder.circuit.certain
        for message, result in zip(batch, results, strict=True):
            if not self._has(message):
                continue
            if result.outcome not in ("ok", "rejected") and (broken or message.probe or result.outcome == "full"):
                share.probe_failed()
            fate = judge(message, route, result, now, bounds=bounds, policies=policies, broken=broken, certain=certain)
            self._settle(message, fate)

    def not_sent(self, batch: Sequence[InFlightMessage]) -> None:
        """A batch was not sent after all: it stays in the queue, and whoever owns that pulls it anew."""
        self._returned(batch)
        for message in batch:
            if self._has(message):
                self._drop(message)

    def _returned(self, batch: Sequence[InFlightMessage]) -> Share:
        share = self._share_of(batch[0])
        share.returned(len(batch))
        for message in batch:
            self._leaving.pop(message.ticket, None)
            message.stage = Stage.PULLED  # so that it is pulled anew, should what follows fail
        return share

    # -- told: Redis -------------------------------------------------------------------------------------------------

    def _settle(self, message: InFlightMessage, fate: Fate) -> None:
        """Redis is to be told this. What waits behind a message in its lane is parked with it."""
        if isinstance(fate, Park):
            for one in self._lanes.clear_from(message):
                if one.by_force and ParkedSet.is_of_topic(fate.name):  # nothing holds it
                    self._forget(one)
                    self.rewind(one.score)
                else:
                    self._set_aside(one, fate)
            return
        if isinstance(fate, Retry):
            message.pause = fate.pause
        message.stage = Stage.ACKING if isinstance(fate, Ack) else Stage.SETTLING
        self._settlement.add(message, fate)

    def _set_aside(self, message: InFlightMessage, fate: Park) -> None:
        self._parked.expect(fate.name, message.place)  # from now on whatever comes after it has to wait behind it
        self._weigh(message, -message.size)
        message.stage = Stage.PARKING
        self._settlement.add(message, fate)

    def steps(self, now: Now) -> list[Step]:
        """What Redis is to be told now."""
        return self._settlement.steps(self._tenure, now)

    def answered(self, step: Step, answer: Any, now: int) -> bool:
        """Let go of what Redis has answered for; True if it says that this epoch is over."""
        self._settlement.answered(step)
        messages = [message for message, _ in step.entries]
        if step.fate is Ack:
            for message in messages:
                self._forget(message)
            fenced = not answer[0]
            for message in messages if not fenced else ():
                self._leave_lane(message, now)
            if self._tenure.observer is not None:
                self._tenure.observer.acked(messages, now)
            return fenced
        if answer is None:
            return True
        if step.fate is Park:
            self.observe_set(step.name, answer)
            for message in messages:
                self._forget(message)
            return False
        for (message, fate), status in zip(step.entries, answer, strict=True):
            if not isinstance(message, Corrupt):
                self._answered_failed(message, fate, status, now)
        return False

    def _answered_failed(self, message: InFlightMessage, fate: Retry | Bury, status: str, now: int) -> None:
        if status == "changed":
            self._drop(message)  # somebody else touched it: look again
        elif isinstance(fate, Retry) and status == "ok" and fate.due is None:
            message.stage = Stage.BACKING_OFF
            message.attempts += 1
            message.again_at = self._tenure.clock.monotonic() + message.pause
        else:
            self._forget(message)
            self._leave_lane(message, now)
        if isinstance(fate, Retry) and fate.due is not None:
            self.rewind(fate.due)  # it lies behind the offset, unless the clock was set back since it was pulled

    # -- parked sets -------------------------------------------------------------------------------------------------

    def observe_set(self, name: str, answer: Parked, *, moved: bool = False) -> bool:
        """Take in what a parked set is like now, behind a call that may have `moved` some of it into the queue. Returns whether
        something may have left the set."""
        if (due := self._parked.observe(name, answer, moved=moved)) is not None:
            self.rewind(due)
            self._offset.unread = True  # it stands there by now, also where the offset has not come to yet
        for message, _ in self._settlement.to_park(name):  # it does not know of these yet
            self._parked.expect(name, message.place)
        return due is not None

    def observe_sets(self, names: Iterable[str]) -> None:
        """Redis says which parked sets there are: what was forgotten is known again, and what is gone is pulled anew."""
        if (due := self._parked.observe_names(names, self._settlement.names)) is not None:
            self.rewind(due)
        for name in self._parked:
            if ParkedSet.is_of_lane(name) and self._lanes.low(name):
                self._parked.want(name)

    # -- anew: what is pulled again ----------------------------------------------------------------------------------

    def drop_backed_off(self) -> None:
        """Pull messages with an ordering key anew whose back-off is over."""
        for message in self._lanes.backing_off():
            if message.again_at <= self._tenure.clock.monotonic():
                self._drop(message)

    def stop_sending(self, *, fenced: bool) -> None:
        """What is not being sent stays in the queue for the next owner; what was confirmed is acked."""
        if fenced:
            self._settlement.keep_acks_only()
        self._wants_nothing()
        self._not_offered()
        for share in self._shares.values():
            for message in share.waiting:
                message.stage = Stage.PULLED
            share.waiting, share.waiting_since = [], None

    def _wants_nothing(self) -> None:
        """What was said to be wanted is for others: nobody here would send it. A job that goes on says it anew."""
        now = self._tenure.clock.monotonic()
        self._grants.lacks_nothing()
        self._grants.want((), now)
        self._grants.slots.want({}, 0, now)

    def reset(self) -> None:
        """After an unexpected error: forget all that is not being sent or acked; it is pulled anew.

        What was about to be parked may be parked already: its set stays known.
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
        """What these pause is pulled anew, and set aside then, unless it is being sent or was."""
        self._policies = policies
        self._wants_nothing()  # what limits it may be another
        for message in self._not_offered():
            self._drop(message)
        self._leaving = {}
        if not policies.pauses:
            return
        for share in self._shares.values():
            share.waiting = [one for one in share.waiting if policies.pause(one.topic) is None]
            share.waiting_since = share.waiting_since if share.waiting else None
        for message in list(self._messages.values()):
            if not self._has(message) or policies.pause(message.topic) is None:
                continue
            if message.stage is Stage.SENDING:
                self._leaving[message.ticket] = message.topic
            elif message.stage in (Stage.PULLED, Stage.WAITING, Stage.BACKING_OFF):
                self._drop(message)

    def observe_pauses(self, pauses: int) -> None:
        """The process has stood still so many times; after another one, others may own what is not being sent."""
        if pauses != self._pauses:
            self._pauses = pauses
            self.reset()

    def _drop(self, message: InFlightMessage) -> None:
        """Forget a message that was not settled, and those behind it in its lane: they are pulled anew, in order."""
        for one in self._lanes.clear_from(message):
            self._forget(one)
            self.rewind(one.score)

    def _leave_lane(self, message: InFlightMessage, now: int) -> None:
        """After Redis has been told: the next message of its key may go."""
        if not message.record.keyed:
            return
        following = self._lanes.leave(message)
        lane = self._lanes.name(message)
        if lane in self._parked and self._lanes.low(lane):
            self._parked.want(lane)
        if following is None:
            return
        share = self._share_of(following)
        if following.stale(now):
            self._drop(following)  # it may have been cancelled meanwhile
        elif following.expired(now):
            self._settle(following, Bury("expired"))
        elif self._passes(following, share, share.gate()):
            self._send(share, [following], now)
        else:
            self._settle(following, Park(share.aside))

    # -- what is counted ---------------------------------------------------------------------------------------------

    def _has(self, message: InFlightMessage) -> bool:
        """Whether it is still this very one that is in flight."""
        return self._messages.get(message.ticket) is message

    def _add(self, message: InFlightMessage) -> None:
        self._messages[message.ticket] = message
        self._size += message.size
        self._weigh(message, message.size)

    def _forget(self, message: InFlightMessage) -> None:
        if self._has(message):
            del self._messages[message.ticket]
            self._size -= message.size
            if message.permitted:
                message.permitted = False
                self._share_of(message).returns_permit()
            if message.slot is not None and message.stage is not Stage.SENDING:
                self._give_back([message])  # something failed just before it was sent
            if message.stage is not Stage.PARKING:
                self._weigh(message, -message.size)

    def _weigh(self, message: InFlightMessage, size: int) -> None:
        if message.route is not None and (share := self._shares.get(message.route.name)) is not None:
            share.bytes += size

    def _share_of(self, message: InFlightMessage) -> Share:
        """Of a message that goes to a target."""
        assert message.route is not None
        return self._shares[message.route.name]


def _slots_of(batch: Iterable[InFlightMessage]) -> list[Slot]:
    """The slots that these messages have, and have no more."""
    slots = []
    for message in batch:
        if message.slot is not None:
            slots.append(message.slot)
            message.slot = None
    return slots


def _limits(batch: Sequence[InFlightMessage], find: Callable[[str], T | None]) -> tuple[list[T | None], Counter[T]]:
    """What limits each message of a batch, and how many each limits."""
    topics = ["" if message.by_force else message.record.topic for message in batch]
    counts = Counter(topics)
    found = {topic: find(topic) if topic else None for topic in counts}
    wanted = Counter[T]()
    for topic, limit in found.items():
        if limit is not None:
            wanted[limit] += counts[topic]
    return [found[topic] for topic in topics], wanted
