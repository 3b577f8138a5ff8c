"""A model of layouts while everything runs, with every interleaving of two clients, a reshard and a drop.

    .venv/bin/python -m reliability.model reshard

One id has one queue in each layout, so a layout here is that one queue. A step is one Redis script or a reload of the list
of layouts. It may also be one step of `delayq reshard`, or of the worker that drops a layout. Both may stop anywhere and be
repeated, since nothing obliges the search to take their next step. A client may use a list of any age. In the world PAUSED
somebody pauses the message's topic meanwhile: until a queue has the pause, nodes deliver from it by former policies.
`protocol_model.py` checks the rules within one queue, and `pause_model.py` those of pauses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from reliability.model.search import Broken, search

T = TypeVar("T")
Step = tuple[str, "State"]
Place = Literal["nothing", "live", "ended", "cancelled"]  # ended or cancelled: remembered in `final`

LAYOUTS = (0, 1, 2)  # two reshards
CLIENTS = (0, 1)


@dataclass(frozen=True)
class Rules:
    list_first: bool = True  # the new layout is listed before an old queue is closed
    ask_the_old: bool = True  # the next place is written only after the old one answered MOVED
    oldest_first: bool = True  # False: the newest is asked first, then back to the oldest
    lookups_move: bool = True  # get and cancel get MOVED, too; False: a closed queue answers not_found
    drop_empty: bool = True  # a layout is dropped only once it holds no message
    drop_forgotten: bool = True  # ... and remembers no id
    drop_closed: bool = True  # ... and is closed
    keep_closed: bool = True  # a dropped queue always answers MOVED; False: its keys are gone, and it looks open
    skip_only_shut: bool = True  # a new id may skip queues that answered MOVED to this client; False: all queues
    # A closed queue forgets a cancel that `again` lifts; False: it answers MOVED and keeps it.
    lifted_forgotten: bool = True
    # Listed layouts have the policies, read after the listing, before an old queue is closed.
    policies_before_close: bool = True
    policies_to_all: bool = True  # ... every layout that is listed; False: the newest one
    list_behind: bool = True  # a caller that pauses reads the list of layouts after it set the pause


@dataclass(frozen=True)
class Call:
    kind: Literal["schedule", "again", "look", "cancel"]
    place: int  # the layout to ask next
    live: bool  # whether the message was there when the call began
    back: bool = False  # on the way back from the newest (only without oldest_first)


@dataclass(frozen=True)
class Client:
    known: tuple[int, ...] = (0,)
    shut: frozenset[int] = frozenset()  # layouts that answered MOVED
    call: Call | None = None
    reload: bool = False  # the call waits for the list of layouts


@dataclass(frozen=True)
class Pause:
    """The progress of a pause: it is set, applied to each layout of a list, and answered."""

    set: bool = False
    list: tuple[int, ...] | None = None  # of layouts to which it is applied
    answered: bool = False
    queues: tuple[bool, ...] = (False,) * len(LAYOUTS)  # that have it
    seen: bool | None = None  # by the reshard, after its last listing
    ready: bool = False  # the listed layouts have the pause that was seen


@dataclass(frozen=True)
class State:
    listed: tuple[int, ...] = (0,)
    closed: tuple[bool, ...] = (False,) * len(LAYOUTS)
    places: tuple[Place, ...] = ("nothing", "nothing", "nothing")
    clients: tuple[Client, ...] = (Client(),) * len(CLIENTS)
    made: bool = False  # the id was given to a caller, who may repeat the call
    remembered: bool = False  # it has ended within the window
    pause: Pause | None = None

    @property
    def live(self) -> bool:
        return "live" in self.places


#: In which a topic is paused meanwhile; one client is enough there.
PAUSED = State(clients=(Client(),), pause=Pause())


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def steps(s: State, rules: Rules) -> Iterator[Step]:
    yield from reshard_steps(s, rules)
    yield from worker_steps(s, rules)
    for c in range(len(s.clients)):
        yield from client_steps(s, c, rules)
    if s.pause is not None:
        yield from pause_steps(s, s.pause, rules)


def pause_steps(s: State, pause: Pause, rules: Rules) -> Iterator[Step]:
    if not pause.set and (pause.list is not None or rules.list_behind):
        yield "a pause is set", replace(s, pause=replace(pause, set=True))
    if pause.list is None and (pause.set or not rules.list_behind):
        yield "who pauses reads the list", replace(s, pause=replace(pause, list=s.listed))
    if pause.set and pause.list is not None and not pause.answered:
        for k in pause.list:
            if not pause.queues[k]:
                yield f"the pause reaches {k}", replace(s, pause=replace(pause, queues=put(pause.queues, k, True)))
        if all(pause.queues[k] for k in pause.list):
            yield "the pause is answered", replace(s, pause=replace(pause, answered=True))
    if pause.seen is None and len(s.listed) > 1:
        yield "the reshard reads the policies", replace(s, pause=replace(pause, seen=pause.set))
    if pause.seen is not None and not pause.ready:
        queues = pause.queues
        for k in s.listed if rules.policies_to_all else s.listed[-1:]:
            queues = put(queues, k, queues[k] or pause.seen)
        yield "the reshard brings them to the queues", replace(s, pause=replace(pause, queues=queues, ready=True))


def reshard_steps(s: State, rules: Rules) -> Iterator[Step]:
    newest = s.listed[-1]
    if newest < LAYOUTS[-1] and (rules.list_first or s.closed[newest]):
        anew = s.pause and replace(s.pause, seen=None, ready=False)
        yield f"list {newest + 1}", replace(s, listed=(*s.listed, newest + 1), pause=anew)
    if s.pause is not None and rules.policies_before_close and not s.pause.ready:
        return
    for old in s.listed:
        if not s.closed[old] and (old < newest or (not rules.list_first and old < LAYOUTS[-1])):
            yield f"close {old}", replace(s, closed=put(s.closed, old, True))


def worker_steps(s: State, rules: Rules) -> Iterator[Step]:
    for k in s.listed:
        if s.places[k] == "live" and not (s.pause and s.pause.queues[k]):
            if s.pause and s.pause.answered:
                raise Broken("a message is handed out after its pause was answered")
            yield f"forward from {k}", replace(s, places=put(s.places, k, "ended"), remembered=True)
    if s.remembered:
        forgotten = s.places
        for k in LAYOUTS:
            forgotten = put(forgotten, k, "nothing") if s.places[k] in ("ended", "cancelled") else forgotten
        yield "the window passes", replace(s, places=forgotten, remembered=False)
    for k in s.listed[:-1]:
        empty = s.places[k] != "live" or not rules.drop_empty
        forgotten_all = s.places[k] not in ("ended", "cancelled") or not rules.drop_forgotten
        if empty and forgotten_all and (s.closed[k] or not rules.drop_closed):
            kept = s.closed[k] if rules.keep_closed else False
            place: Place = "live" if s.places[k] == "live" else "nothing"
            yield (
                f"drop {k}",
                replace(
                    s,
                    listed=tuple(one for one in s.listed if one != k),
                    closed=put(s.closed, k, kept),
                    places=put(s.places, k, place),
                ),
            )


def client_steps(s: State, c: int, rules: Rules) -> Iterator[Step]:
    client = s.clients[c]

    def having(state: State, **change: object) -> State:
        return replace(state, clients=put(state.clients, c, replace(client, **change)))  # type: ignore[arg-type]

    if client.reload:
        assert client.call is not None
        after = [k for k in s.listed if k > client.call.place]
        if not after:
            raise Broken("a closed queue is the newest that is listed: there is no place to go on")
        yield f"{c} reloads", having(s, known=s.listed, reload=False, call=replace(client.call, place=after[0]))
        return
    if client.call is None:
        if client.known != s.listed:
            yield f"{c} reads the list", having(s, known=s.listed)
        for kind in ("schedule", "again", "look", "cancel") if s.made else ("schedule",):
            place = first_place(client, rules, fresh=not s.made)
            yield (
                f"{c} begins to {kind}",
                having(replace(s, made=True), call=Call(kind, place, s.live)),
            )
        return
    yield from asked(s, c, client.call, rules)


def first_place(client: Client, rules: Rules, *, fresh: bool) -> int:
    if not rules.oldest_first or (fresh and not rules.skip_only_shut) or not rules.ask_the_old:
        return client.known[-1]
    if fresh:
        return next((k for k in client.known if k not in client.shut), client.known[-1])
    return client.known[0]


def asked(s: State, c: int, call: Call, rules: Rules) -> Iterator[Step]:
    """One script at the place of the call."""
    client, k = s.clients[c], call.place

    def then(state: State, **change: object) -> State:
        return replace(state, clients=put(state.clients, c, replace(client, **change)))  # type: ignore[arg-type]

    label = f"{c} asks {k} to {call.kind}"
    if call.kind == "again" and s.places[k] == "cancelled":
        if not s.closed[k]:
            yield f"{label}: scheduled", then(replace(s, places=put(s.places, k, "live"), remembered=False), call=None)
            return
        s = replace(s, remembered=False)
        if rules.lifted_forgotten:
            s = replace(s, places=put(s.places, k, "nothing"))
    elif s.places[k] != "nothing":
        if s.places[k] != "live" and call.live and s.live:
            raise Broken(f"{call.kind} answers an end for an existing message")
        state = s
        if call.kind == "cancel" and s.places[k] == "live":
            state = replace(s, places=put(s.places, k, "cancelled"), remembered=True)
        yield f"{label}: {s.places[k]}", then(state, call=None)
        return
    if not rules.oldest_first:
        older = [one for one in client.known if one < k]
        if older:
            yield f"{label}: not there", then(s, call=replace(call, place=older[-1], back=True))
            return
        k = client.known[-1] if call.back else k  # nowhere: write the newest
    if s.closed[k] and (call.kind in ("schedule", "again") or rules.lookups_move):
        following = [one for one in client.known if one > k]
        change = (
            then(s, shut=client.shut | {k}, call=replace(call, place=following[0], back=False))
            if following
            else then(s, shut=client.shut | {k}, call=replace(call, place=k, back=False), reload=True)
        )
        yield f"{label}: moved", change
    elif call.kind not in ("schedule", "again"):
        if call.live and s.live:
            raise Broken(f"{call.kind} answers not_found for an existing message")
        yield f"{label}: not_found", then(s, call=None)
    else:
        if s.remembered:
            raise Broken("an id that has ended within the window is scheduled again")
        yield f"{label}: scheduled", then(replace(s, places=put(s.places, k, "live")), call=None)


def wrong(s: State) -> str | None:
    if s.places.count("live") > 1:
        return "an id is live twice"
    if any(place == "live" and k not in s.listed for k, place in enumerate(s.places)):
        return "a message is where nobody pulls: it is lost"
    return None


def check(rules: Rules, limit: int = 2_000_000, world: State | None = None) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    return search(world or State(), lambda s: steps(s, rules), wrong, limit)
