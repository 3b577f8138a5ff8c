"""Messages that their topic holds, from a pull that parks them to a release that hands them out, under one ordering key.

    .venv/bin/python -m reliability.model hold

Three messages of one topic and one key, numbered by their due times. Redis has a queue, the set of the topic, and a set of
another kind (of a target, or of the lane of the key). The script that pulls moves a message into the set of its topic if the
topic is paused or if that set is not empty. It does not move a message that its owner has in memory, or that a caller had
delivered by force. The owner parks messages itself, too: in the set of the topic at a limit, in the other set when its target
takes nothing. A release takes the earliest message out of one of the sets and hands it out in the same step. A message of the
other set goes into the set of the topic instead, if the topic is paused or that set is not empty.
Replies may be lost, and a release whose reply was lost may run late. An owner that lost a reply looks again from the head of the
queue. From each state in which the topic is not paused, all messages must be delivered without another fault.
A message that is delivered by force has no order: it passes others, and others pass it.
Redis and the owner agree on the pauses here (`pause_model.py` has their versions).
Not modelled: late calls but for a release (`parking_model.py`), cancels (`pause_model.py`), several topics: each has its own set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeVar

from reliability.model.search import Broken, search

T = TypeVar("T")
Step = tuple[str, "State"]
Place = Literal["queue", "held", "parked", "gone"]
Stage = Literal["", "waits", "sending", "acking", "holding", "parking"]  # '': not in the owner's memory

ALL = (0, 1, 2)
MAX_CHANGES, MAX_OWNERS, MAX_LOST = 3, 2, 1
UNKNOWN = -1  # everything stands behind it


class World(NamedTuple):
    """The possible events: all of them at once would be too many states."""

    parks: bool = False  # the owner parks messages itself
    forces: bool = False  # a caller has messages delivered by force
    pauses: bool = False  # the topic is paused and resumed
    faults: bool = False  # replies are lost, an owner is reset, another one follows


WORLDS = {
    "an owner that parks, pauses, and faults": World(parks=True, pauses=True, faults=True),
    "force, and faults": World(forces=True, pauses=True, faults=True),
}


class Rules(NamedTuple):
    behind: bool = True  # a pull parks later messages when the set of its topic is not empty
    keeps: bool = True  # a pull does not move a message that its owner has in memory
    reads_first: bool = True  # a release takes no message after the offset of the pulls
    looks_again: bool = True  # after a lost reply the owner looks again from the head of the queue
    incarnation: bool = True  # after a lost reply the owner takes a new incarnation, which fences late calls
    drops: bool = True  # messages in memory are pulled again when their topic is paused; False: they are sent
    judges: bool = True  # a release takes nothing out of the set while the topic is paused
    spares: bool = True  # a message that is delivered by force is not parked for its topic
    waits: bool = True  # a released message waits behind parked messages of its key
    gates: bool = True  # a release of the other set parks for the topic, as a pull does
    follows: bool = True  # a message is parked in the set of its topic while another one is about to be


class State(NamedTuple):
    # Redis
    places: tuple[Place, ...] = ("queue", "queue", "queue")
    paused: bool = False
    forced: frozenset[int] = frozenset()
    late: Place | None = None  # a release of this set is on its way, from an earlier incarnation of the owner
    # the owner
    stages: tuple[Stage, ...] = ("", "", "")
    offset: int = 0  # the place where the next pull begins
    parks: int | None = None  # the other set has no message before this place
    stale: frozenset[int] = frozenset()  # messages of which the owner has an old ticket in memory
    # the world
    arrived: frozenset[int] = frozenset()
    changes: int = 0  # by callers
    owners: int = 1
    lost: int = 0


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def staged(s: State, m: int, stage: Stage) -> State:
    return s._replace(stages=put(s.stages, m, stage))


def placed(s: State, m: int, place: Place) -> State:
    return s._replace(places=put(s.places, m, place))


def at(s: State, stage: Stage) -> list[int]:
    return [m for m in ALL if s.stages[m] == stage]


def there(s: State, place: Place) -> list[int]:
    return [m for m in ALL if s.places[m] == place]


# -- Redis -------------------------------------------------------------------------------------------------------------


def holds(s: State, m: int, rules: Rules) -> bool:
    """Whether a pull moves a message into the set of its topic."""
    if m in s.forced and rules.spares:
        return False
    return s.paused or (rules.behind and bool(there(s, "held")))


def moves(s: State, ms: list[int], place: Place) -> State:
    """Redis parks messages that are in the queue as they were pulled."""
    for m in ms:
        if s.places[m] == "queue" and m not in s.stale:
            s = placed(s, m, place)
    return s


def releases(s: State, rules: Rules, place: Place = "held") -> int | None:
    """The message that a release takes out of a set."""
    there_now = there(s, place)
    if not there_now or (rules.reads_first and there_now[0] >= s.offset):
        return None
    if place == "held" and s.paused and rules.judges:
        return None
    return there_now[0]


# -- the owner ---------------------------------------------------------------------------------------------------------


def park_from(s: State, first: int, stage: Literal["holding", "parking"]) -> State:
    """Mark a message and the messages that wait behind it as to be parked."""
    for m in at(s, "waits"):
        if m >= first:
            s = staged(s, m, stage)
            if stage == "parking":
                s = s._replace(parks=m if s.parks is None else min(s.parks, m))
    return s


def take(s: State, m: int, rules: Rules) -> State:
    """Accept a message that was handed out: it waits for its turn, or is parked behind parked messages of its key."""
    s = staged(s, m, "waits")
    if s.parks is not None and m > s.parks and rules.waits:
        return park_from(s, m, "parking")
    return park_from(s, m, "holding") if rules.follows and m not in s.forced and at(s, "holding") else s


def settled(s: State, ms: list[int]) -> State:
    """The owner has the results of these; an old ticket has none."""
    for m in ms:
        s = staged(s, m, "")
    return s._replace(stale=s.stale.difference(ms))


def described(s: State) -> State:
    """Redis returns the state of the other set."""
    return s._replace(parks=min([*there(s, "parked"), *at(s, "parking")], default=None))


def calls(s: State, rules: Rules) -> Iterator[tuple[str, State, State]]:
    """The commands that the owner may send: Redis afterwards, and its replies."""
    for m in at(s, "acking"):
        ran = placed(s, m, "gone") if s.places[m] == "queue" and m not in s.stale else s
        yield f"ack {m}", ran, settled(ran, [m])
    if holding := at(s, "holding"):
        ran = moves(s, holding, "held")
        yield f"hold {holding}", ran, settled(ran, holding)
    if parking := at(s, "parking"):
        ran = moves(s, parking, "parked")
        yield f"park {parking}", ran, described(settled(ran, parking))
    elif s.parks is not None:
        first = releases(s, rules, "parked")
        if first is None:
            yield "release nothing from the other set", s, described(s)
        elif rules.gates and holds(s, first, rules):
            ran = placed(s, first, "held")
            yield f"release from the other set holds {first}", ran, described(ran)
        else:
            ran = placed(s, first, "queue")
            known = s.stages[first] != "" and first not in s.stale
            yield (
                f"release {first} from the other set",
                ran,
                described(ran) if known else take(described(ran), first, rules),
            )
    if (released := releases(s, rules)) is not None:
        ran = placed(s, released, "queue")
        known = s.stages[released] != "" and released not in s.stale
        yield f"release {released}", ran, ran if known else take(ran, released, rules)
    yield from pull(s, rules)
    yield "look", s, look(s)


def pull(s: State, rules: Rules) -> Iterator[tuple[str, State, State]]:
    found = [m for m in ALL if m >= s.offset and s.places[m] == "queue"][:1]
    if not found:
        yield "pull nothing", s, s._replace(offset=len(ALL))
    for m in found:
        known = s.stages[m] != "" and m not in s.stale
        if holds(s, m, rules) and not (known and rules.keeps):
            ran = placed(s, m, "held")
            yield f"pull parks {m}", ran, ran._replace(offset=m + 1)
        elif known or s.stages[m] == "":
            after = s if known else take(s, m, rules)
            yield f"pull {m}", s, after._replace(offset=m + 1)


def look(s: State) -> State:
    """The names of the sets, and whether something stands before the offset that is not in memory."""
    if any(s.places[m] == "queue" and s.stages[m] == "" for m in range(s.offset)):
        s = s._replace(offset=0)
    if there(s, "parked") and s.parks is None:
        s = s._replace(parks=UNKNOWN)
    elif not there(s, "parked") and s.parks is not None and not at(s, "parking"):
        s = s._replace(parks=None)
    return s


def by_itself(s: State, rules: Rules) -> Iterator[Step]:
    """The steps without a fault."""
    busy = bool(at(s, "sending") or at(s, "acking"))
    for m in at(s, "sending"):
        yield f"{m} arrives", staged(s, m, "acking")._replace(arrived=s.arrived | {m})
    for m in at(s, "waits")[:1]:
        if not busy:
            if m not in s.forced:
                if passed := [one for one in range(m) if one not in s.arrived | s.forced]:
                    raise Broken(f"{m} overtakes {passed[0]}")
                if m in s.arrived and s.lost == 0 and s.owners == 1:
                    raise Broken(f"{m} is sent twice")
            yield f"{m} is sent", staged(s, m, "sending")
    for label, _, after in calls(s, rules):
        if after != s:
            yield label, after


def drop_from(s: State, m: int) -> State:
    """Pull this message again, and the messages that wait behind it."""
    for one in [m, *(other for other in at(s, "waits") if other > m)]:
        s = staged(s, one, "")._replace(offset=min(s.offset, one))
    return s


def events(s: State, rules: Rules, world: World) -> Iterator[Step]:
    """The steps of callers and targets."""
    yield "a message of another key moves the offset back", s._replace(offset=0)
    for m in at(s, "sending"):
        yield f"{m} is not sent, and pulled again", drop_from(s, m)
    for m in at(s, "waits") if world.parks else ():
        yield f"{m} and those behind it may not wait", park_from(s, m, "holding")
        yield f"the target of {m} takes nothing", park_from(s, m, "parking")
    if s.changes == MAX_CHANGES:
        return
    if world.pauses:
        after = s._replace(paused=not s.paused, changes=s.changes + 1)
        waiting = [m for m in at(s, "waits") if m not in s.forced]
        if after.paused and rules.drops and waiting:
            after = drop_from(after, waiting[0])
        yield ("pause" if after.paused else "resume"), after
    for m in ALL if world.forces else ():
        if m not in s.forced and s.places[m] != "gone" and s.stages[m] in ("", "holding", "parking"):
            after = placed(s, m, "queue")._replace(forced=s.forced | {m}, changes=s.changes + 1)
            after = after._replace(offset=min(s.offset, m))  # the wake
            yield f"{m} is forced", after._replace(stale=s.stale | {m} if s.stages[m] else s.stale)


def faults(s: State, rules: Rules) -> Iterator[Step]:
    if s.late:
        m = releases(s, rules, s.late) if not rules.incarnation else None
        yield "the late release runs", (s if m is None else placed(s, m, "queue"))._replace(late=None)
    if s.lost < MAX_LOST:
        for label, ran, _ in calls(s, rules):
            unheard = ran._replace(lost=s.lost + 1, offset=0 if rules.looks_again else s.offset)
            if not label.startswith("look"):
                yield f"{label}: not heard", unheard
            if label.startswith("release"):
                late: Place = "parked" if "other set" in label else "held"
                yield f"{label}: late", s._replace(lost=s.lost + 1, late=late, offset=unheard.offset)
        yield "reset", reset(s)._replace(lost=s.lost + 1)
    if s.owners < MAX_OWNERS:
        new = State(
            s.places, s.paused, s.forced, arrived=s.arrived, changes=s.changes, owners=s.owners + 1, lost=s.lost
        )
        yield "another owner claims", look(new)


def reset(s: State) -> State:
    """Messages that are not being sent or acked are pulled again. The outcome of parking commands is unknown."""
    for m in ALL:
        if s.stages[m] not in ("sending", "acking"):
            s = staged(s, m, "")
    return s._replace(offset=0, stale=frozenset())


def check(rules: Rules, world: World, limit: int) -> tuple[str | None, str, int]:
    """The broken rule (None: nothing), the steps to it, and the number of states."""
    before: defaultdict[State, list[State]] = defaultdict(list)  # by steps while all is well
    seen = set()

    def steps(s: State) -> Iterator[Step]:
        seen.add(s)
        for label, after in by_itself(s, rules):
            before[after].append(s)
            yield label, after
        yield from events(s, rules, world)
        if world.faults:
            yield from faults(s, rules)

    what, how, states = search(State(), steps, wrong, limit)
    if what is not None or how != "every state":
        return what, how, states
    ending = [s for s in seen if ended(s)]
    ends = set(ending)
    while ending:
        new = [s for s in before[ending.pop()] if s not in ends]
        ends.update(new)
        ending += new
    if stuck := seen - ends:
        return search(State(), steps, lambda s: "something waits forever" if s in stuck else None, limit)
    return None, how, states


def ended(s: State) -> bool:
    """Whether all is gone but what is paused."""
    return all(place == "gone" or (s.paused and m not in s.forced) for m, place in enumerate(s.places))


def wrong(s: State) -> str | None:
    for m in ALL:
        if s.places[m] == "gone" and m not in s.arrived:
            return f"{m} is gone and was never delivered"
        if s.paused and s.stages[m] == "waits" and m not in s.forced:
            return f"{m} may be sent while its topic is paused"
    return None
