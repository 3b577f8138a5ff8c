"""What a pause holds, and what of the same key follows it, checked over lost replies and the owners that follow each other.

    .venv/bin/python -m reliability.model hold

Three messages of one topic and one ordering key. While their topic is paused they are held in the set of the topic; what comes
behind the first that is held goes there too, until the set is empty again. Redis and the owner agree on the policies here
(`pause_model.py` has the fence), so a change of them is one step: the owner reads them and goes on. Its calls may be run and
not heard. A new owner knows the names of the sets and nothing else. From each state in which nothing is paused all messages
must come to their end without another fault.
A caller may have a held message delivered by force: it leaves the set under a new ticket, and what the owner has of the old one
does nothing any more. It comes to its end although its topic is paused, and passes what is held; nothing else does.
Not modelled: late calls (`parking_model.py`), cancels (`pause_model.py`); the new ticket is pulled after the owner was told that
the old one is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeVar

from reliability.model.search import Broken, search

T = TypeVar("T")
Step = tuple[str, "State"]
Place = Literal["queue", "held", "gone"]
Stage = Literal["", "waits", "sending", "acking", "holding"]  # '': not in the owner's memory

ALL = (0, 1, 2)
MAX_BY_HAND, MAX_OWNERS, MAX_LOST = 3, 2, 1
UNKNOWN = -1  # everything stands behind it


class Rules(NamedTuple):
    behind: bool = True  # what stands behind a held message of its topic is held too
    rewinds: bool = True  # where less stands in the set than was known, the offset goes back, whoever asked
    drops: bool = True  # what waits in memory when its topic is paused is pulled anew; False: it is sent
    note: bool = True  # the place is noted before Redis is told to hold it
    spares: bool = True  # one that is forced is not held


class State(NamedTuple):
    # Redis
    places: tuple[Place, ...] = ("queue", "queue", "queue")
    paused: bool = False
    # the owner
    stages: tuple[Stage, ...] = ("", "", "")
    offset: int = 0  # of what is looked at next
    holds: int | None = None  # nothing stands in the set of the topic before this place
    forced: frozenset[int] = frozenset()
    stale: frozenset[int] = frozenset()  # what the owner has in memory of these is an old ticket
    # the world
    arrived: frozenset[int] = frozenset()
    changes: int = 0  # by hand
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


def lower(known: int | None, place: int) -> int:
    return place if known is None else min(known, place)


# -- the owner ---------------------------------------------------------------------------------------------------------


def is_behind(s: State, m: int, rules: Rules) -> bool:
    """Whether it comes behind a message that is held, as far as the owner knows."""
    return rules.behind and m not in s.forced and s.holds is not None and s.holds < m


def is_paused(s: State, m: int, rules: Rules) -> bool:
    return s.paused and not (m in s.forced and rules.spares)


def hold(s: State, m: int, rules: Rules) -> State:
    s = staged(s, m, "holding")
    if rules.note:
        s = s._replace(holds=lower(s.holds, m))
    for one in at(s, "waits"):
        if one > m:
            s = drop_from(s, one) if one in s.forced else hold(s, one, rules)
    return s


def take(s: State, m: int, rules: Rules) -> State:
    """It was pulled: it waits for its turn, or is held."""
    return hold(s, m, rules) if is_behind(s, m, rules) or is_paused(s, m, rules) else staged(s, m, "waits")


def heard(s: State, known: int | None, rules: Rules, *, moved: bool = False) -> tuple[State, int | None]:
    """Redis says what the set is like. If something has left it, the queue is looked at again from where the set began."""
    now = there(s, "held")
    if known is not None and (moved or (rules.rewinds and (not now or now[0] > known))):
        s = s._replace(offset=max(0, min(s.offset, known)))
    return s, now[0] if now else None


def settled(s: State, ms: list[int]) -> State:
    """The owner has heard what became of these: nothing, of an old ticket."""
    for m in ms:
        s = staged(s, m, "")
    return s._replace(stale=s.stale.difference(ms))


def moves(s: State, ms: list[int], place: Place) -> State:
    """Redis sets aside what stands in the queue as it was pulled."""
    for m in ms:
        if s.places[m] == "queue" and m not in s.stale:
            s = placed(s, m, place)
    return s


def calls(s: State, rules: Rules) -> Iterator[tuple[str, State, State]]:
    """What the owner may tell Redis: Redis afterwards, and with what it hears from it."""
    for m in at(s, "acking"):
        ran = placed(s, m, "gone")
        yield f"ack {m}", ran, staged(ran, m, "")
    holding = at(s, "holding")
    if holding:
        ran = moves(s, holding, "held")
        after, head = heard(settled(ran, holding), s.holds, rules)
        yield f"hold {holding}", ran, after._replace(holds=head)
    if s.holds is not None and not s.paused and not holding:
        lowest = there(s, "held")[:1]
        ran = placed(s, lowest[0], "queue") if lowest else s
        after, head = heard(ran, s.holds, rules, moved=True)
        yield f"bring {lowest} back", ran, after._replace(holds=head)
    if s.holds is not None and not holding:
        after, head = heard(s, s.holds, rules)
        yield "look at the set", s, after._replace(holds=head)
    found = [m for m in ALL if m >= s.offset and s.places[m] == "queue" and s.stages[m] == ""][:1]
    for m in found:
        yield f"pull {m}", s, take(s, m, rules)._replace(offset=m + 1)
    yield "look", s, look(s)


def look(s: State) -> State:
    """The names of the sets, and whether something stands before the offset that is not in memory."""
    if any(s.places[m] == "queue" and s.stages[m] == "" for m in range(s.offset)):
        s = s._replace(offset=0)
    if there(s, "held") and s.holds is None:
        s = s._replace(holds=UNKNOWN)
    elif not there(s, "held") and s.holds is not None and not at(s, "holding"):
        s = s._replace(offset=0, holds=None)
    return s


def by_itself(s: State, rules: Rules) -> Iterator[Step]:
    """What happens while all is well."""
    busy = bool(at(s, "sending") or at(s, "acking"))
    for m in at(s, "sending"):
        yield f"{m} arrives", staged(s, m, "acking")._replace(arrived=s.arrived | {m})
    for m in at(s, "waits")[:1]:
        if not busy:
            if m not in s.forced and (passed := [one for one in range(m) if one not in s.arrived]):
                raise Broken(f"{m} overtakes {passed[0]}")
            yield f"{m} is sent", staged(s, m, "sending")
    for label, _, after in calls(s, rules):
        if after != s:
            yield label, after


def faults(s: State, rules: Rules) -> Iterator[Step]:
    if s.changes < MAX_BY_HAND:
        after = s._replace(paused=not s.paused, changes=s.changes + 1)
        if after.paused and rules.drops and (waiting := [m for m in at(s, "waits") if is_paused(after, m, rules)]):
            after = drop_from(after, waiting[0])
        yield ("pause" if after.paused else "resume"), after
    for m in at(s, "sending"):
        yield f"{m} is not sent, and pulled anew", drop_from(s, m)
    if s.paused and s.changes < MAX_BY_HAND:
        for m in ALL:
            if m not in s.forced and s.places[m] != "gone" and s.stages[m] in ("", "holding"):
                after = placed(s, m, "queue")._replace(forced=s.forced | {m}, changes=s.changes + 1)
                yield f"{m} is forced", after._replace(stale=s.stale | {m} if s.stages[m] else s.stale)
    if s.lost < MAX_LOST:
        for label, ran, _ in calls(s, rules):
            if label.startswith(("hold", "bring", "ack")):
                yield f"{label}: not heard", ran._replace(lost=s.lost + 1)
        yield "reset", reset(s)._replace(lost=s.lost + 1)
    if s.owners < MAX_OWNERS:
        new = State(
            places=s.places,
            paused=s.paused,
            forced=s.forced,
            arrived=s.arrived,
            changes=s.changes,
            owners=s.owners + 1,
        )
        yield "another owner claims", look(new._replace(lost=s.lost))


def drop_from(s: State, m: int) -> State:
    """Pull this one anew, and what waits behind it."""
    for one in [m, *(other for other in at(s, "waits") if other > m)]:
        s = staged(s, one, "")._replace(offset=min(s.offset, one))
    return s


def reset(s: State) -> State:
    """What is not being sent or acked is pulled anew; of what was to be set aside nobody knows what became of it."""
    for m in ALL:
        if s.stages[m] not in ("sending", "acking"):
            s = staged(s, m, "")
    return s._replace(offset=0, stale=frozenset())


def check(rules: Rules, limit: int) -> tuple[str | None, str, int]:
    """What is broken (None: nothing), by which steps, and how many states were seen."""
    before: defaultdict[State, list[State]] = defaultdict(list)  # by steps while all is well
    seen = set()

    def steps(s: State) -> Iterator[Step]:
        seen.add(s)
        for label, after in by_itself(s, rules):
            before[after].append(s)
            yield label, after
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
        return search(State(), steps, lambda s: "something waits for ever" if s in stuck else None, limit)
    return None, how, states


def ended(s: State) -> bool:
    """Whether all is gone but what is paused."""
    left = [m for m in ALL if s.places[m] != "gone"]
    return not left or (s.paused and not s.forced.intersection(left))


def wrong(s: State) -> str | None:
    for m in ALL:
        if s.places[m] == "gone" and m not in s.arrived:
            return f"{m} is gone and was never forwarded"
        if s.paused and s.stages[m] == "waits" and m not in s.forced:
            return f"{m} may be sent while its topic is paused"
    return None
