"""Where pulled messages go from here: to their target's forwarder, behind their ordering key, or aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from delayq.codec import CorruptRecord
from delayq.routes import Route, Routes
from delayq.store.commands import Parked, Pulled
from workers.queue.in_flight import InFlight
from workers.queue.ordering import Lanes
from workers.queue.parked_sets import NO_ROUTE, ParkedSets
from workers.queue.policy import Policy
from workers.queue.refusals import Refusals
from workers.queue.settlement import Corrupt, Settlement
from workers.sending.forwarder import STALL, Forwarder, Report
from workers.sending.message import InFlightMessage, Stage

__all__ = ["Dispatch"]


class Dispatch:
    """Sorts the messages of one queue. `settlement` gets what Redis has to be told of them."""

    def __init__(self, routes: Routes, forwarders: Mapping[str, Forwarder], policy: Policy, report: Report) -> None:
        self.flight = InFlight()
        self.settlement = Settlement()
        self.lanes = Lanes()
        self.parked = ParkedSets()
        self.waiting: dict[str, list[InFlightMessage]] = {}  # for room at their route's forwarder, in order
        self.submitted: dict[str, int] = dict.fromkeys(forwarders, 0)
        self.keys_to_unpark: set[str] = set()
        self.refusals = Refusals()
        self.returning: set[str] = set()  # parked sets that are to come back, as their streams take messages again
        self.pauses = 0  # of the process, when this tick began
        self._routes = routes
        self._forwarders = forwarders
        self._report = report
        # No route may fill the whole window, so that one that hangs leaves room for the others.
        self._share = max(1, policy.window // (len(forwarders) + 1))
        self._share_bytes = policy.window_bytes // (len(forwarders) + 1)
        self._typical: dict[str, int] = {}  # bytes of a route's message, by the last that found no room
        self._crowd: dict[str, int] = {}  # bytes that a route held beside messages that did not fit in
        self._probes: dict[str, int] = {}
        self._waiting_since: dict[str, int] = {}  # monotonic ms

    # -- in ------------------------------------------------------------------------------------------------------

    def take(self, pulled: Pulled, now: int, *, keyed: bool = True, settled: Set[bytes] = frozenset()) -> None:
        """Hold what was pulled and send it on its way, but for what has just been settled.

        Without `keyed`, messages with an ordering key are left too.
        """
        ready: dict[str, list[InFlightMessage]] = {}
        gates: dict[str, bool] = {}
        refused = {**self.refusals.reasons, **pulled.refused}
        for ticket, score, attempts, raw in zip(
            pulled.tickets, pulled.scores, pulled.attempts, pulled.records, strict=True
        ):
            if ticket in self.flight.held or ticket in settled:
                continue
            try:
                held = InFlightMessage(ticket, score, attempts, raw)
                held.pulled_at = now
                topic = held.record.topic
            except (CorruptRecord, UnicodeDecodeError) as error:
                self.settlement.bury(Corrupt(ticket, score, attempts), f"corrupt record: {error}")
                continue
            if keyed or not held.record.keyed:
                self._take_one(held, topic, now, refused, gates, ready)
        for name, batch in ready.items():
            self._submit(self._forwarders[name], batch)

    def _take_one(
        self,
        held: InFlightMessage,
        topic: str,
        now: int,
        refused: Mapping[str, str],
        gates: dict[str, bool],
        ready: dict[str, list[InFlightMessage]],
    ) -> None:
        route = held.route = self._routes.find(topic)
        self.flight.add(held)
        if route is None:
            self._park(NO_ROUTE, held)
        elif held.expired(now):
            self.settlement.bury(held, "expired")
        elif route.name not in self._forwarders:
            if (error := refused.get(topic)) is None:
                self.flight.drop(held)  # its stream was not known to the pull; the next one is told
            elif error.startswith("WRONGTYPE"):
                self.settlement.bury(held, f"the key {route.stream_of(topic)} is not a stream")
            else:
                self._park(f"t:{route.name}", held)
        elif held.record.keyed and (aside := self._set_of(held, route)) is not None:
            self._park(aside, held)
        elif not self._gate(route, gates, held):
            if self._room_bytes(route.name) < 0:
                self._crowded(route.name, [held])
            self._park(f"t:{route.name}", held)
        elif not held.record.keyed:
            ready.setdefault(route.name, []).append(held)
        elif self.lanes.enter(held):
            held.stage = Stage.WAITING  # from now on, so that none of its key sets off beside it
            ready.setdefault(route.name, []).append(held)

    def _set_of(self, held: InFlightMessage, route: Route) -> str | None:
        """The parked set behind which a message with an ordering key has to wait, if any."""
        lane = self.lanes.name(held)
        for name in (f"t:{route.name}", lane):
            if self.parked.holds_up(name, held.place):
                return name
        return lane if self.lanes.full(held) else None

    def _gate(self, route: Route, gates: dict[str, bool], held: InFlightMessage) -> bool:
        """Whether the route's messages may go: its circuit is closed, or this one is a probe; and it is not stuck."""
        name = route.name
        go = gates.get(name)
        if go is None:
            forwarder = self._forwarders[name]
            if forwarder.circuit.open:
                self._probes[name] = self._probes.get(name, 0) or forwarder.circuit.permit()
                go = False
            else:
                self._probes.pop(name, None)
                go = not self._stuck(forwarder)
            gates[name] = go
        lanes = self.lanes.count(name) if held.record.keyed else 0
        if go and lanes and (lanes >= self._share or self._room_bytes(name) < 0):
            return False  # what waits behind others of its key fills the window no less than what is being sent
        if not go and self._probes.get(name, 0) > 0:
            self._probes[name] -= 1
            held.probe = True
        elif not go and self._forwarders[name].circuit.may_try(held.id):
            held.probe = True
        return go or held.probe

    # -- out -----------------------------------------------------------------------------------------------------

    def _room(self, forwarder: Forwarder) -> int:
        """How many messages more the route may have on their way, however large they are."""
        return min(forwarder.room, self._share - self.submitted[forwarder.route.name])

    def _bytes(self, name: str) -> int:
        """What the route's messages take of the window; those that are about to be parked take nothing."""
        return self.flight.bytes_of.get(name, 0) - self.settlement.bytes_to_park.get(f"t:{name}", 0)

    def _room_bytes(self, name: str) -> int:
        return self._share_bytes - self._bytes(name)

    def _crowded(self, name: str, batch: Sequence[InFlightMessage]) -> None:
        """These are held and too large for what is left: nothing parked need come back before a send has ended.

        Nor before what else is held has become less, as it may be dropped or parked too.
        """
        size = sum(held.size for held in batch)
        self._typical[name] = size // len(batch)
        self._crowd[name] = self._bytes(name) - size

    def _fitting(self, name: str, batch: Sequence[InFlightMessage]) -> int:
        """How many of a held batch the route's share of the window's bytes has room for; one always finds some."""
        count, beyond = len(batch), -self._room_bytes(name)
        while count and beyond > 0:
            count -= 1
            beyond -= batch[count].size
        return count if count or self.submitted[name] else 1

    def _stuck(self, forwarder: Forwarder) -> bool:
        """Whether more for it would be in the others' way: it has no room, and that does not change quickly."""
        name = forwarder.route.name
        if self._room(forwarder) > 0 and (self._room_bytes(name) >= 0 or not self.submitted[name]):
            return False
        waited = forwarder.waited(self._waiting_since.get(name))
        return forwarder.stalled or f"t:{name}" in self.parked or waited > STALL

    def _submit(self, forwarder: Forwarder, batch: list[InFlightMessage]) -> None:
        name = forwarder.route.name
        for held in batch:
            held.stage = Stage.WAITING
        queued = self.waiting.get(name)
        if queued:
            queued.extend(batch)
            return
        fitting = self._fitting(name, batch)
        room = max(0, min(self._room(forwarder), fitting))
        if room < len(batch):
            self.waiting[name] = batch[room:]
            self._waiting_since.setdefault(name, forwarder.now())
            if fitting < len(batch):
                self._crowded(name, batch[room:])
            batch = batch[:room]
        else:
            self._typical.pop(name, None)
        if batch:
            for held in batch:
                held.stage = Stage.SENDING
            self.submitted[name] += len(batch)
            forwarder.submit(self._report, batch, self.pauses)

    def flow(self, now: int) -> None:
        """Send what waits for room; park what waits at a forwarder that finishes nothing."""
        for name in list(self.waiting):
            forwarder = self._forwarders[name]
            batch = self._still_fresh(self.waiting.pop(name), now)
            if batch and not forwarder.circuit.open:
                self._submit(forwarder, batch)
                batch = self.waiting.pop(name, []) if self._stuck(forwarder) else []
            for held in batch:
                self.park_lane(held, f"t:{name}")
            if name not in self.waiting:
                self._waiting_since.pop(name, None)

    def _still_fresh(self, batch: list[InFlightMessage], now: int) -> list[InFlightMessage]:
        """Those that have not waited for long; the others are pulled anew."""
        if not any(held.stale(now) for held in batch):
            return batch
        fresh = []
        for held in batch:
            if held.stale(now):
                self.drop_lane(held)
            else:
                fresh.append(held)
        return fresh

    @property
    def any_parked(self) -> bool:
        """Whether anything is parked that comes back when there is room."""
        return any(name.startswith("t:") and name[2:] in self._forwarders for name in self.parked)

    @property
    def outstanding(self) -> bool:
        """Whether anything was handed out, or set aside for its target, and is not confirmed.

        Messages of a target whose circuit is open do not count: they wait for the target, and its circuit tells so.
        """
        settlement = self.settlement
        if settlement.acks or settlement.retries or settlement.burials:
            return True
        names = {*self.parked, *settlement.parkings}
        names.update(f"t:{name}" for name, count in self.submitted.items() if count)
        names.update(f"t:{name}" for name in self.waiting)
        return any(name[:2] == "t:" and name[2:] in self._forwarders and not self.probing(name) for name in names)

    def refuses(self, name: str) -> bool:
        """Whether a stream refuses, for which messages are parked under this name."""
        return any(
            route is not None and f"t:{route.name}" == name for route in map(self._routes.find, self.refusals.reasons)
        )

    def probing(self, name: str) -> bool:
        """Whether the target behind a parked set is held for broken."""
        forwarder = self._forwarders.get(name[2:])
        return forwarder is not None and forwarder.circuit.open

    def at_fault(self, route: str) -> bool:
        """Whether the target is certainly at fault for what failed, and not the messages."""
        return self._forwarders[route].circuit.certain

    def probe_failed(self, name: str) -> None:
        """Let no more of the permitted probes go: the next pause has begun."""
        self._probes.pop(name, None)

    def may_come_back(self, name: str, ramp: int) -> int:
        """How many messages parked for a target may come back now."""
        forwarder = self._forwarders.get(name[2:])
        if forwarder is None or name[2:] in self.waiting:
            return 0
        if forwarder.circuit.open:
            # Probes that were allowed and have not been pulled yet stay allowed.
            if permit := forwarder.circuit.permit():
                self._probes[name[2:]] = permit
            return permit
        name = name[2:]
        if 0 < self._crowd.get(name, 0) <= self._bytes(name):
            return 0
        room = min(self._room(forwarder), self._share - self.lanes.count(name))
        heavy = self._room_bytes(name) // self._typical.get(name, 1)
        if not self.submitted[name]:
            heavy = max(1, heavy)
        return 0 if forwarder.stalled else max(0, min(ramp, room, heavy))

    def park_lane(self, held: InFlightMessage, name: str) -> None:
        """Park a message, and those that wait behind it in its lane."""
        behind = self.lanes.behind(held) if held.record.keyed else []
        for one in (held, *behind):
            self.lanes.leave(one)
            self._park(name, one)

    def _park(self, name: str, held: InFlightMessage) -> None:
        """Set one message aside: from now on whatever comes after it has to wait behind it."""
        self.parked.expect(name, held.place)
        self.settlement.park(name, held)

    # -- back ----------------------------------------------------------------------------------------------------

    def returned(self, batch: Sequence[InFlightMessage]) -> None:
        """A batch is no longer being sent."""
        route = batch[0].route
        assert route is not None
        self.submitted[route.name] -= len(batch)
        self._crowd.pop(route.name, None)

    def leave_lane(self, held: InFlightMessage, now: int) -> None:
        """After Redis has been told: the next message of its key may go."""
        if not held.record.keyed:
            return
        following = self.lanes.leave(held)
        lane = self.lanes.name(held)
        if lane in self.parked and self.lanes.low(lane):
            self.keys_to_unpark.add(lane)
        if following is None:
            return
        route = following.route
        assert route is not None
        if following.stale(now):
            self.drop_lane(following)  # it may have been cancelled meanwhile
        elif following.expired(now):
            self.settlement.bury(following, "expired")
        elif not self._gate(route, {}, following):
            self.park_lane(following, f"t:{route.name}")
        else:
            self._submit(self._forwarders[route.name], [following])

    def drop_lane(self, held: InFlightMessage) -> None:
        """Forget a message and those behind it in its lane; they are pulled anew, in order."""
        for one in (held, *(self.lanes.behind(held) if held.record.keyed else ())):
            self.lanes.leave(one)
            self.flight.drop(one)

    def forget_waiting(self) -> None:
        """Leave what waits for room unsent."""
        for batch in self.waiting.values():
            for held in batch:
                held.stage = Stage.PULLED
        self.waiting.clear()

    # -- parked sets ---------------------------------------------------------------------------------------------

    def told_of_set(self, name: str, answer: Parked) -> None:
        """Redis says what a parked set is like now."""
        if (due := self.parked.told(name, answer)) is not None:
            self.flight.offset.rewind(due)
        for held in self.settlement.parkings.get(name, ()):  # it does not know of these yet
            self.parked.expect(name, held.place)

    def found_sets(self, names: Iterable[str]) -> None:
        """Redis says which parked sets there are: what was forgotten is known again, and what is gone is pulled anew."""
        if (due := self.parked.found(names, self.settlement.parkings)) is not None:
            self.flight.offset.rewind(due)
        self.keys_to_unpark.update(name for name in self.parked if name.startswith("k:") and self.lanes.low(name))

    # -- after trouble -------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """After an unexpected error: forget all that is not being sent or acked; it is pulled anew.

        What was about to be parked may be parked already: its set stays known.
        """
        self.settlement.keep_acks_only()
        self.forget_waiting()
        self.lanes = Lanes()
        acks = set(map(id, self.settlement.acks))
        for held in list(self.flight.held.values()):
            if held.stage is not Stage.SENDING and id(held) not in acks:
                self.flight.drop(held)
            elif held.record.keyed:
                self.lanes.enter(held)
        self.flight.offset.rewind(0)
