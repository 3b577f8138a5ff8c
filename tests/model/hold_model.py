"""What a pause holds and what follows it, checked over the replies of an owner that may be lost and the owners that follow it.

    python tests/model/hold_model.py # the rules, then what breaks without each of them (a minute)

One ordering key, one target. Message 0 has a topic that is paused and resumed, message 1 another one, and follows it: 0 is
held in the set of its topic, 1 is parked in the set of their lane. Redis and the owner agree on the policies here
(`pause_model.py` has the fence), so a change of them is one step: the owner reads them and goes on. Its calls may be run and
not heard. A new owner knows the names of the sets and nothing else. From each state in which nothing is paused both messages
must come to their end without another fault.
Not modelled: late calls and turns (`parking_model.py`: the sets of topics are sets as all others), cancels (`pause_model.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from tests.model.search import Broken, search

Step = tuple[str, "State"]
Place = Literal["queue", "held", "lane", "gone"]
Stage = Literal["", "waits", "sending", "acking", "holding", "parking"]  # '': not in the owner's memory

MAX_CHANGES, MAX_OWNERS, MAX_LOST = 3, 2, 2


class Rules(NamedTuple):
    held_back: bool = True  # what follows a held message of its key is parked in its lane
    remembers: bool = (
        True  # the owner knows of which lanes a set holds something; False: only while it has them in memory
    )
    learns: bool = True  # a set whose lanes are not known yet holds back all that has an ordering key and its target
    rewinds: bool = True  # where less stands in the set than was known, the offset goes back, whoever asked
    drops: bool = True  # what waits in memory when its topic is paused is pulled anew; False: it is sent
    note: bool = True  # the place is noted before Redis is told to hold it


class State(NamedTuple):
    # Redis
    places: tuple[Place, Place] = ("queue", "queue")
    paused: bool = False
    # the owner
    stages: tuple[Stage, Stage] = ("", "")
    offset: int = 0  # of what is looked at next
    holds: bool = False  # it knows the set of the topic
    learnt: bool = True  # ... and its lanes
    lane_held: bool = False  # something of this lane stands in it
    parks: bool = False  # it knows the set of the lane
    # the world
    arrived: frozenset[int] = frozenset()
    changes: int = 0
    owners: int = 1
    lost: int = 0


def put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def staged(s: State, m: int, stage: Stage) -> State:
    return s._replace(stages=put(s.stages, m, stage))


def drop(s: State, m: int) -> State:
    return staged(s, m, "")._replace(offset=min(s.offset, m))


def clear_from(s: State, m: int) -> State:
    """Pull this one anew, and what waits behind it."""
    for one in range(m, 2):
        if s.stages[one] == "waits" or one == m:
            s = drop(s, one)
    return s


# -- the owner ---------------------------------------------------------------------------------------------------------


def hold(s: State, rules: Rules) -> State:
    """The topic of 0 is paused: it is to be set aside, and what waits behind it is parked."""
    s = staged(s, 0, "holding")
    if rules.note:
        s = s._replace(holds=True, lane_held=s.lane_held or rules.remembers)
    return park(s, rules) if s.stages[1] == "waits" and rules.held_back else s


def park(s: State, rules: Rules) -> State:
    s = staged(s, 1, "parking")
    return s._replace(parks=True) if rules.note else s


def held_back(s: State, rules: Rules) -> bool:
    """Whether what follows in the lane has to wait, as the owner sees it."""
    if not rules.held_back:
        return False
    return s.stages[0] == "holding" or (s.holds and (s.lane_held or (not s.learnt and rules.learns)))


def take(s: State, m: int, rules: Rules) -> State:
    """It was pulled: it waits for its turn, is held, or parked."""
    s = staged(s, m, "waits")
    if m == 0 and s.paused:
        return hold(s, rules)
    if m == 1 and (held_back(s, rules) or s.parks):
        return park(s, rules)
    return s


def calls(s: State, rules: Rules) -> Iterator[tuple[str, State, State]]:
    """What the owner may tell Redis: Redis afterwards, and with what it hears from it."""
    for m in (0, 1):
        if s.stages[m] == "acking":
            ran = s._replace(places=put(s.places, m, "gone"))
            yield f"ack {m}", ran, staged(ran, m, "")
    if s.stages[0] == "holding":
        ran = s._replace(places=put(s.places, 0, "held")) if s.places[0] == "queue" else s
        yield "hold 0", ran, staged(ran, 0, "")._replace(holds=True, lane_held=ran.lane_held or rules.remembers)
    if s.stages[1] == "parking":
        ran = s._replace(places=put(s.places, 1, "lane")) if s.places[1] == "queue" else s
        yield "park 1", ran, staged(ran, 1, "")._replace(parks=True)
    if s.holds and not s.paused and s.stages[0] != "holding":
        ran = s._replace(places=put(s.places, 0, "queue")) if s.places[0] == "held" else s
        yield "bring 0 back", ran, ran._replace(holds=False, learnt=True, lane_held=False, offset=0)
    waits = held_back(s, rules)
    if s.parks and s.stages[1] != "parking" and s.stages[0] in ("", "holding") and not waits:
        ran = s._replace(places=put(s.places, 1, "queue")) if s.places[1] == "lane" else s
        yield "bring 1 back", ran, ran._replace(parks=False, offset=min(s.offset, 1))
    if s.holds and not s.learnt and s.stages[0] != "holding":
        heard = s._replace(learnt=True, lane_held=rules.remembers)
        if s.places[0] != "held":
            heard = s._replace(learnt=True, lane_held=False, offset=0 if rules.rewinds else s.offset)
        yield "read the lanes", s, heard
    found = [m for m in (0, 1) if m >= s.offset and s.places[m] == "queue" and s.stages[m] == ""][:1]
    for m in found:
        yield f"pull {m}", s, take(s, m, rules)._replace(offset=m + 1)
    yield "look", s, look(s)


def look(s: State) -> State:
    """The names of the sets, and whether something stands before the offset that is not in memory."""
    if any(s.places[m] == "queue" and s.stages[m] == "" for m in range(s.offset)):
        s = s._replace(offset=0)
    if s.places[0] == "held" and not s.holds:
        s = s._replace(holds=True, learnt=False)
    elif s.places[0] != "held" and s.holds and s.stages[0] != "holding":
        s = s._replace(holds=False, learnt=True, lane_held=False, offset=0)
    if s.places[1] == "lane" and not s.parks:
        s = s._replace(parks=True)
    elif s.places[1] != "lane" and s.parks and s.stages[1] != "parking":
        s = s._replace(parks=False, offset=0)
    return s


def by_itself(s: State, rules: Rules) -> Iterator[Step]:
    """What happens while all is well."""
    for m in (0, 1):
        if s.stages[m] == "sending":
            yield f"{m} arrives", staged(s, m, "acking")._replace(arrived=s.arrived | {m})
        if s.stages[m] == "waits" and (m == 0 or s.stages[0] in ("", "holding")):
            if m == 1 and 0 not in s.arrived:
                raise Broken("1 overtakes 0")
            yield f"{m} is sent", staged(s, m, "sending")
    for label, _, heard in calls(s, rules):
        if heard != s:
            yield label, heard


def faults(s: State, rules: Rules) -> Iterator[Step]:
    if s.changes < MAX_CHANGES:
        after = s._replace(paused=not s.paused, changes=s.changes + 1)
        if after.paused and s.stages[0] == "waits" and rules.drops:
            after = clear_from(after, 0)
        yield ("pause" if after.paused else "resume"), after
    if s.stages[0] == "sending":
        yield "0 is not sent, and pulled anew", clear_from(s, 0)
    if s.lost < MAX_LOST:
        for label, ran, _ in calls(s, rules):
            if label.startswith(("hold", "park", "bring", "ack")):
                yield f"{label}: not heard", ran._replace(lost=s.lost + 1)
    yield "reset", reset(s)
    if s.owners < MAX_OWNERS:
        names = State(places=s.places, paused=s.paused, arrived=s.arrived, changes=s.changes)
        names = names._replace(holds=s.places[0] == "held", learnt=s.places[0] != "held", parks=s.places[1] == "lane")
        yield "another owner claims", names._replace(owners=s.owners + 1, lost=s.lost)


def reset(s: State) -> State:
    """What is not being sent or acked is pulled anew; of what was to be set aside nobody knows what became of it."""
    for m in (0, 1):
        if s.stages[m] not in ("sending", "acking"):
            s = staged(s, m, "")
    return s._replace(offset=0)


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
    ending = [s for s in seen if s.places == ("gone", "gone") or s.paused]
    ends = set(ending)
    while ending:
        new = [s for s in before[ending.pop()] if s not in ends]
        ends.update(new)
        ending += new
    if stuck := seen - ends:
        return search(State(), steps, lambda s: "something waits for ever" if s in stuck else None, limit)
    return None, how, states


def wrong(s: State) -> str | None:
    for m in (0, 1):
        if s.places[m] == "gone" and m not in s.arrived:
            return f"{m} is gone and was never forwarded"
    if s.paused and s.stages[0] == "waits":
        return "0 may be sent while its topic is paused"
    return None


if __name__ == "__main__":
    for name in ("", *Rules._fields):
        rules = Rules(**{name: False}) if name else Rules()
        what, how, states = check(rules, limit=1_000_000)
        told = "holds" if what is None else f"BROKEN: {what} ({how})"
        print(f"{'without ' + name if name else 'the rules'}: {told}; {states:,} states", flush=True)
