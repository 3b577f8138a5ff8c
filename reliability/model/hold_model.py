"""What a pause holds and what follows it, checked over the replies of an owner that may be lost and the owners that follow it.

    .venv/bin/python -m reliability.model hold

One ordering key, one target. Two of three messages have a topic that is paused and resumed, one has another: what is paused is
held in the set of its topic, what follows it is parked in the set of their lane. Redis and the owner agree on the policies here
(`pause_model.py` has the fence), so a change of them is one step: the owner reads them and goes on. Its calls may be run and
not heard. A new owner knows the names of the sets and nothing else. From each state in which nothing is paused all messages
must come to their end without another fault.
A caller may have one that is held delivered by force: it leaves the set under a new ticket, with its place, and what the owner
has of the old one does nothing any more. Also while the topic stays paused it must come to its end, unless one that goes
before it is held and was not forced.
Not modelled: late calls and turns (`parking_model.py`: the sets of topics are sets as all others), cancels (`pause_model.py`);
the new ticket is pulled after the owner was told that the old one is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeVar

from reliability.model.search import Broken, search

T = TypeVar("T")
Step = tuple[str, "State"]
Place = Literal["queue", "held", "lane", "gone"]
Stage = Literal["", "waits", "sending", "acking", "holding", "parking"]  # '': not in the owner's memory

ALL = (0, 1, 2)
#: The messages whose topic is paused and resumed; the others have another one.
TOPICS = ((0, 2), (0, 1))
MAX_BY_HAND, MAX_OWNERS, MAX_LOST = 3, 2, 1
UNKNOWN = -1  # everything stands behind it
NOTHING = -2


class Rules(NamedTuple):
    held_back: bool = True  # what follows a held message of its key is parked in its lane
    remembers: bool = (
        True  # the owner knows up to where a set holds something of a lane; False: only while it has it in memory
    )
    learns: bool = True  # a set whose lanes are not known yet holds back all that has an ordering key and its target
    rewinds: bool = True  # where less stands in the set than was known, the offset goes back, whoever asked
    drops: bool = True  # what waits in memory when its topic is paused is pulled anew; False: it is sent
    note: bool = True  # the place is noted before Redis is told to hold it
    last: bool = True  # a lane is held back until all of it has come back; False: until its first one has
    follows: bool = True  # one that is forced waits behind what is held of its key
    spares: bool = True  # one that is forced is not held for its own topic


class State(NamedTuple):
    topic: tuple[int, ...]  # the messages that can be paused
    # Redis
    places: tuple[Place, ...] = ("queue", "queue", "queue")
    paused: bool = False
    # the owner
    stages: tuple[Stage, ...] = ("", "", "")
    offset: int = 0  # of what is looked at next
    holds: int | None = None  # nothing stands in the set of the topic before this place
    learnt: bool = True  # it knows its lanes
    last: int = NOTHING  # the last one of this lane that was put there
    parks: int | None = None  # the same of the set of the lane
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


def held_back(s: State, m: int, rules: Rules) -> bool:
    """Whether it follows something that is held, as the owner sees it."""
    if not rules.held_back:
        return False
    if m in s.forced and not rules.follows:
        return False
    if any(one < m for one in at(s, "holding")):
        return True
    return s.holds is not None and s.holds < m and (s.last >= s.holds or (not s.learnt and rules.learns))


def lane_stays(s: State) -> bool:
    """Whether nothing of the lane may come back yet."""
    if s.parks is None or s.parks == UNKNOWN:
        return False
    return any(one < s.parks for one in at(s, "holding")) or (
        s.holds is not None and s.holds < s.parks and (s.last >= s.holds or not s.learnt)
    )


def is_paused(s: State, m: int, rules: Rules) -> bool:
    return m in s.topic and s.paused and not (m in s.forced and rules.spares)


def remember(s: State, ms: list[int], rules: Rules) -> State:
    """These of the lane stand in the set of the topic, or are about to."""
    if not ms or not rules.remembers:
        return s
    first_stays = not rules.last and s.last != NOTHING
    return s if first_stays else s._replace(last=max(s.last, *ms) if rules.last else min(ms))


def hold(s: State, m: int, rules: Rules) -> State:
    s = staged(s, m, "holding")
    if rules.note:
        s = remember(s._replace(holds=lower(s.holds, m)), [m], rules)
    for one in at(s, "waits"):
        if one > m:
            s = set_aside(s, one, rules)
    return s


def set_aside(s: State, m: int, rules: Rules) -> State:
    """What is paused goes into the set of its topic, what follows into that of its lane."""
    if is_paused(s, m, rules):
        return hold(s, m, rules)
    s = staged(s, m, "parking")
    return s._replace(parks=lower(s.parks, m)) if rules.note else s


def take(s: State, m: int, rules: Rules) -> State:
    """It was pulled: it waits for its turn, is held, or parked."""
    s = staged(s, m, "waits")
    behind = held_back(s, m, rules) or (s.parks is not None and m > s.parks)
    return set_aside(s, m, rules) if behind or is_paused(s, m, rules) else s


def heard(s: State, known: int | None, place: Place) -> tuple[State, int | None]:
    """Redis says what a set is like: from where it was known to begin the queue is looked at again."""
    now = there(s, place)
    s = s._replace(offset=s.offset if known is None else max(0, min(s.offset, known)))
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
    holding, parking = at(s, "holding"), at(s, "parking")
    if holding:
        ran = moves(s, holding, "held")
        after = settled(remember(ran, holding, rules), holding)
        after, head = heard(after, s.holds, "held")
        yield f"hold {holding}", ran, known_as(after, head)
    if parking:
        ran = moves(s, parking, "lane")
        after, head = heard(settled(ran, parking), s.parks, "lane")
        yield f"park {parking}", ran, after._replace(parks=head)
    if s.holds is not None and not s.paused and not holding:
        lowest = there(s, "held")[:1]
        ran = placed(s, lowest[0], "queue") if lowest else s
        after, head = heard(ran, s.holds, "held")
        yield f"bring {lowest} back", ran, known_as(after, head)
    if s.parks is not None and not parking and not lane_stays(s):
        lowest = there(s, "lane")[:1] if s.parks != UNKNOWN else []  # its turn has to be told first
        ran = placed(s, lowest[0], "queue") if lowest else s
        after, head = heard(ran, s.parks, "lane")
        yield f"bring {lowest} of the lane back", ran, after._replace(parks=head)
    if s.holds is not None and not s.learnt and not holding:
        now = there(s, "held")
        after, head = heard(s, s.holds, "held") if rules.rewinds else (s, now[0] if now else None)
        yield "read the lanes", s, known_as(remember(after, now, rules)._replace(learnt=True), head)
    if s.holds is not None and not holding:
        after, head = heard(s, s.holds, "held")
        yield "look at the set", s, known_as(after, head)
    found = [m for m in ALL if m >= s.offset and s.places[m] == "queue" and s.stages[m] == ""][:1]
    for m in found:
        yield f"pull {m}", s, take(s, m, rules)._replace(offset=m + 1)
    yield "look", s, look(s)


def known_as(s: State, head: int | None) -> State:
    """The set of the topic begins there; an empty one has no lanes."""
    return s._replace(holds=head) if head is not None else s._replace(holds=None, learnt=True, last=NOTHING)


def look(s: State) -> State:
    """The names of the sets, and whether something stands before the offset that is not in memory."""
    if any(s.places[m] == "queue" and s.stages[m] == "" for m in range(s.offset)):
        s = s._replace(offset=0)
    if there(s, "held") and s.holds is None:
        s = s._replace(holds=UNKNOWN, learnt=False)
    elif not there(s, "held") and s.holds is not None and not at(s, "holding"):
        s = known_as(s._replace(offset=0), None)
    if there(s, "lane") and s.parks is None:
        s = s._replace(parks=UNKNOWN)
    elif not there(s, "lane") and s.parks is not None and not at(s, "parking"):
        s = s._replace(parks=None, offset=0)
    return s


def by_itself(s: State, rules: Rules) -> Iterator[Step]:
    """What happens while all is well."""
    busy = bool(at(s, "sending") or at(s, "acking"))
    for m in at(s, "sending"):
        yield f"{m} arrives", staged(s, m, "acking")._replace(arrived=s.arrived | {m})
    for m in at(s, "waits")[:1]:
        if not busy:
            if passed := [one for one in range(m) if one not in s.arrived]:
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
        for m in s.topic:
            if m not in s.forced and s.places[m] != "gone" and s.stages[m] in ("", "holding", "parking"):
                after = placed(s, m, "queue")._replace(forced=s.forced | {m}, changes=s.changes + 1)
                yield f"{m} is forced", after._replace(stale=s.stale | {m} if s.stages[m] else s.stale)
    if s.lost < MAX_LOST:
        for label, ran, _ in calls(s, rules):
            if label.startswith(("hold", "park", "bring", "ack")):
                yield f"{label}: not heard", ran._replace(lost=s.lost + 1)
        yield "reset", reset(s)._replace(lost=s.lost + 1)
    if s.owners < MAX_OWNERS:
        new = State(
            s.topic,
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


def check(rules: Rules, topic: tuple[int, ...], limit: int) -> tuple[str | None, str, int]:
    """What is broken (None: nothing), by which steps, and how many states were seen."""
    before: defaultdict[State, list[State]] = defaultdict(list)  # by steps while all is well
    seen = set()

    def steps(s: State) -> Iterator[Step]:
        seen.add(s)
        for label, after in by_itself(s, rules):
            before[after].append(s)
            yield label, after
        yield from faults(s, rules)

    what, how, states = search(State(topic), steps, wrong, limit)
    if what is not None or how != "every state":
        return what, how, states
    ending = [s for s in seen if ended(s)]
    ends = set(ending)
    while ending:
        new = [s for s in before[ending.pop()] if s not in ends]
        ends.update(new)
        ending += new
    if stuck := seen - ends:
        return search(State(topic), steps, lambda s: "something waits for ever" if s in stuck else None, limit)
    return None, how, states


def ended(s: State) -> bool:
    """Whether all is gone but what is paused, and what follows it."""
    left = [m for m in ALL if s.places[m] != "gone"]
    return not left or (s.paused and left[0] in s.topic and left[0] not in s.forced)


def wrong(s: State) -> str | None:
    for m in ALL:
        if s.places[m] == "gone" and m not in s.arrived:
            return f"{m} is gone and was never forwarded"
        if m in s.topic and s.paused and s.stages[m] == "waits" and m not in s.forced:
            return f"{m} may be sent while its topic is paused"
    return None
