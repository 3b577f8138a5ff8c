"""Parked sets and the owner that lives on: one ordering key, one target, one parked set, checked in every state.

    .venv/bin/python -m reliability.model parking

A tick of the owner is one batch of scripts: the pending settlements, a pull, a release. A release moves a message from
the set into the queue and returns it, so that its owner has it in flight. The replies may be lost, and commands that did
not arrive may run late, one batch at a time. The store sends no command twice. The target may fail and recover at any
time. A caller may have a parked message delivered now. The message is then in the queue at its place, and leaves a ticket
without a record in the set. The wake may be lost. From each state the owner must be able to end all messages without
another fault. With `back` Redis may go back in time once, over one park or release: order is not promised for what it
moved. Not modelled: cancels, lanes that do not fit in memory, several routes, another owner (`protocol_model.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from reliability.model.search import Broken, search

T = TypeVar("T")
Step = tuple[str, "State"]
Place = Literal["queue", "parked", "gone"]
Stage = Literal["", "waits", "sending", "acking", "retrying", "backing off", "parking"]  # '': not held
# Ack, retry, park: which messages; release: what, up to where; pull: offset, most, whether it looks.
Command = tuple[Any, ...]

MAX_RETRIES = 1


@dataclass(frozen=True)
class Rules:
    incarnation: bool = True  # after a lost reply the owner takes a new incarnation, which fences late calls
    again: bool = True  # after a lost reply the owner pulls again from the head of the queue
    note: bool = True  # the place of a message is noted before the command that parks it
    look: bool = True  # the names of the parked sets are compared with what the owner knows
    upto: bool = True  # a release takes no message after the offset of the pulls
    dropped: bool = True  # if a release drops a ticket without a record, pulls begin at its place again
    once: bool = True  # the store sends a batch once; False: a second try may be answered before the first one is run


class State(NamedTuple):
    # Redis; the messages are numbered by their place
    places: tuple[Place, ...]
    tries: tuple[int, ...]
    dead: frozenset[int] = frozenset()  # places in the set of tickets without a record
    latest: int = 0  # the incarnation
    # on its way: an incarnation, and scripts
    late: tuple[int, tuple[Command, ...]] = (0, ())
    # the owner
    stages: tuple[Stage, ...] = ()
    pulled: tuple[int, ...] = ()  # attempts, as pulled
    offset: int = 0
    known: int | None = None  # the set has no message before this place, as far as the owner knows
    incarnation: int = 0
    # the world
    arrived: frozenset[int] = frozenset()
    unfair: frozenset[int] = frozenset()  # Redis has moved it by going back in time
    went_back: bool = False


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def staged(s: State, stage: Stage) -> list[int]:
    return [m for m, one in enumerate(s.stages) if one == stage]


# -- Redis -------------------------------------------------------------------------------------------------------------


def parked(s: State) -> list[int]:
    return [m for m, place in enumerate(s.places) if place == "parked" or m in s.dead]


def move(s: State, m: int, to: Place) -> State:
    return s._replace(places=put(s.places, m, to))


def run(s: State, incarnation: int, command: Command) -> tuple[State, Any]:
    """Run one script, and return its answer."""
    kind, *words = command
    if kind == "ack":  # a late but true one counts
        for m in words[0]:
            s = s._replace(places=put(s.places, m, "gone")) if s.places[m] == "queue" else s
        return s._replace(latest=max(s.latest, incarnation)), words[0]
    if incarnation < s.latest:
        return s, "fenced"
    s = s._replace(latest=incarnation)
    if kind == "retry":
        m, tries = words
        if s.places[m] != "queue":
            return s, "gone"
        if s.tries[m] == tries:
            return s._replace(tries=put(s.tries, m, tries + 1)), "ok"
        return s, "ok" if s.tries[m] == tries + 1 else "changed"
    if kind == "pull":
        offset, most, _ = words
        found = [m for m, place in enumerate(s.places) if place == "queue" and m >= offset][:most]
        passed = sum(place == "queue" for place in s.places[:offset])
        return s, (found, passed, bool(parked(s)))
    if kind == "park":
        for m, tries in words[0]:
            if s.places[m] == "queue" and s.tries[m] == tries:
                s = move(s, m, "parked")
        return s, next(iter(parked(s)), None)
    what, upto = words
    released: list[int] = []
    dropped = None
    for m in parked(s) if what == "lowest" else parked(s)[-1:]:
        if released or m >= upto:
            break
        if m in s.dead:
            s, dropped = s._replace(dead=s.dead - {m}), m if dropped is None else dropped
        if s.places[m] == "parked":
            s = move(s, m, "queue")
            released.append(m)
    return s, (released, dropped, next(iter(parked(s)), None))


# -- the owner ---------------------------------------------------------------------------------------------------------


def expect(s: State, m: int, rules: Rules) -> State:
    if not rules.note:
        return s
    return s._replace(known=m if s.known is None else min(s.known, m))


def park(s: State, m: int, rules: Rules) -> State:
    return expect(s._replace(stages=put(s.stages, m, "parking")), m, rules)


def lane(s: State) -> list[int]:
    """The messages of the key in memory, in order. The first one may be on its way."""
    busy = [m for m, stage in enumerate(s.stages) if stage in ("sending", "acking", "retrying")]
    return busy + [m for m, stage in enumerate(s.stages) if stage in ("waits", "backing off")]


def drop(s: State, ms: list[int]) -> State:
    for m in ms:
        s = s._replace(stages=put(s.stages, m, ""), offset=min(s.offset, m))
    return s


def park_lane(s: State, first: int, rules: Rules) -> State:
    for m in lane(s)[lane(s).index(first) :]:
        s = park(s, m, rules)
    return s


def batches(s: State, rules: Rules) -> Iterator[tuple[str, list[Command]]]:
    """The commands that a tick may send."""
    settle: list[Command] = []
    if acks := staged(s, "acking"):
        settle.append(("ack", tuple(acks)))
    settle += [("retry", m, s.pulled[m]) for m in staged(s, "retrying")]
    if parks := staged(s, "parking"):
        settle.append(("park", tuple((m, s.pulled[m]) for m in parks)))
    count = len(s.stages)
    releases: list[Command] = []
    if s.known is not None:
        upto = s.offset if rules.upto else count
        releases = [("release", what, upto) for what in ("lowest", "highest")[:count]]
    pulls: list[Command] = [("pull", s.offset, 1, False), ("pull", s.offset, count, True)]
    for release in ([], *([one] for one in releases)):
        for pull in ([], *([one] for one in pulls)):
            if commands := [*settle, *pull, *release]:
                yield "[" + ", ".join(map(text_of, commands)) + "]", commands


def receive(s: State, commands: list[Command], answers: list[Any], rules: Rules) -> State:
    """Process the answers that arrived."""
    back = len(s.stages)  # from where on to look again
    for command, answer in zip(commands, answers, strict=False):
        assert answer != "fenced", "the owner fences itself"
        if command[0] == "ack":
            for m in command[1]:
                s = s._replace(stages=put(s.stages, m, ""))
        elif command[0] == "retry":
            m = command[1]
            if answer == "ok":
                s = s._replace(stages=put(s.stages, m, "backing off"))
            elif answer == "gone":
                s = s._replace(stages=put(s.stages, m, ""))
            else:
                back, s = min(back, m), drop(s, lane(s))
        elif command[0] == "park":
            for m, _ in command[1]:
                s = s._replace(stages=put(s.stages, m, ""))
            s = described(s, answer, rules)
        elif command[0] == "release":
            released, dropped, head = answer
            s = described(s, head, rules)
            if dropped is not None and rules.dropped:
                back = min(back, dropped)
            for m in released:
                if back < len(s.stages):
                    back = min(back, m)
                elif s.stages[m] == "":
                    s = taken(s, m, rules)
        else:
            s = take(s, command, answer, back, rules)
    return s._replace(offset=max(0, min(s.offset, back)))


def described(s: State, head: int | None, rules: Rules) -> State:
    """Redis returns the beginning of the set, without messages that are yet to be parked."""
    s = s._replace(known=head)
    for m in staged(s, "parking"):
        s = expect(s, m, rules)
    return s


def taken(s: State, m: int, rules: Rules) -> State:
    """Accept a message: it waits for its turn, or is parked behind parked messages."""
    s = s._replace(stages=put(s.stages, m, "waits"), pulled=put(s.pulled, m, s.tries[m]))
    return park(s, m, rules) if s.known is not None and m > s.known else s


def take(s: State, command: Command, answer: Any, back: int, rules: Rules) -> State:
    """Accept pulled messages, unless the pull passed a place that must be read again."""
    _, offset, most, looks = command
    found, passed, listed = answer
    if found and back > found[-1]:
        for m in found:
            if s.stages[m] == "":
                s = taken(s, m, rules)
        s = s._replace(offset=found[-1] + 1)
    if len(found) < most and back == len(s.stages):
        s = s._replace(offset=len(s.stages))  # all that is due has been read
    if looks:
        if passed > sum(stage != "" for stage in s.stages[:offset]):
            s = s._replace(offset=0)
        if rules.look and listed and s.known is None:
            s = s._replace(known=-1)
        elif rules.look and not listed and s.known is not None and not staged(s, "parking"):
            s = s._replace(known=None)
    return s


def go_on(s: State, rules: Rules) -> State:
    s = s._replace(offset=0) if rules.again else s
    return s._replace(incarnation=s.incarnation + 1) if rules.incarnation else s


def reset(s: State) -> State:
    s = s._replace(stages=tuple(one if one in ("sending", "acking") else "" for one in s.stages))
    return s._replace(offset=0)


# -- what may happen ---------------------------------------------------------------------------------------------------


def by_itself(s: State, rules: Rules) -> Iterator[Step]:
    """The steps without a fault."""
    held = lane(s)
    if held and s.stages[held[0]] == "sending":
        yield f"{held[0]} arrives", s._replace(stages=put(s.stages, held[0], "acking"), arrived=s.arrived | {held[0]})
    elif held and s.stages[held[0]] in ("waits", "backing off"):
        yield f"{held} are pulled again", drop(s, held)
    if held and s.stages[held[0]] == "waits":
        if passed := [m for m in range(held[0]) if m not in s.arrived | s.unfair]:
            raise Broken(f"{held[0]} overtakes {passed[0]}")
        yield f"{held[0]} is sent", s._replace(stages=put(s.stages, held[0], "sending"))
    for what, commands in batches(s, rules):
        after, answers = run_all(s, commands, s)
        yield what, receive(after, commands, answers, rules)


def faults(s: State, rules: Rules, back: bool) -> Iterator[Step]:
    for m in staged(s, "waits"):
        yield f"{m} and those behind it are parked", park_lane(s, m, rules)
    for m in staged(s, "sending"):
        yield f"{m} fails and is parked", park_lane(s, m, rules)
        if sum(s.tries) < MAX_RETRIES:
            yield f"{m} fails and is retried", s._replace(stages=put(s.stages, m, "retrying"))
    for m in parked(s):
        if s.places[m] == "parked" and s.stages[m] == "" and not s.dead:
            now = move(s, m, "queue")._replace(dead=s.dead | {m})
            yield f"{m} is delivered now", now._replace(offset=min(s.offset, m))
            yield f"{m} is delivered now, and the wake is lost", now
    yield "reset", go_on(reset(s), rules)
    for what, commands in batches(s, rules):
        rest = tuple(one for one in commands if one[0] != "pull")
        if rest and not rules.once:
            after, answers = run_all(s, commands, s)
            late = after._replace(late=(s.incarnation, rest))
            yield f"{what}; the first try is late", receive(late, commands, answers, rules)
        for ran in range(len(commands) + 1):
            rest = tuple(one for one in commands[ran:] if one[0] != "pull")
            after, _ = run_all(s, commands[:ran], s)
            yield (
                f"{what}; {ran} run, unheard",
                go_on(after._replace(late=(s.incarnation, rest)) if rest else after, rules),
            )
    if s.late[1]:
        incarnation, (first, *others) = s.late
        after, _ = run(s, incarnation, first)
        yield f"late: {text_of(first)}", after._replace(late=(incarnation, tuple(others)))
    if back and not s.went_back:
        for m, place in enumerate(s.places):
            if place != "gone":
                moved = s._replace(went_back=True, unfair=s.unfair | {m})
                yield f"Redis goes back in time: {m}", move(moved, m, "parked" if place == "queue" else "queue")


def run_all(s: State, commands: list[Command], sender: State) -> tuple[State, list[Any]]:
    answers = []
    for command in commands:
        s, answer = run(s, sender.incarnation, command)
        answers.append(answer)
    return s, answers


def text_of(command: Command) -> str:
    return " ".join(map(str, command))


def same(s: State) -> State:
    """Number incarnations by rank, and keep only late commands that still have an effect."""
    incarnation, commands = s.late
    if incarnation < s.latest:
        commands = tuple(one for one in commands if one[0] == "ack")
    commands = tuple(one for one in commands if one[0] != "ack" or any(s.places[m] != "gone" for m in one[1]))
    counts = {s.latest, s.incarnation, *([incarnation] if commands else [])}
    count = {one: rank for rank, one in enumerate(sorted(counts))}
    return s._replace(
        late=(count[incarnation] if commands else 0, commands),
        latest=count[s.latest],
        incarnation=count[s.incarnation],
        pulled=tuple(tries if stage else 0 for tries, stage in zip(s.pulled, s.stages, strict=True)),
    )


def lost(s: State) -> str | None:
    for m, place in enumerate(s.places):
        if place == "gone" and m not in s.arrived:
            return f"{m} is gone and was never delivered"
    return None


def check(rules: Rules, count: int, back: bool, limit: int) -> tuple[str | None, str, int]:
    queued: Place = "queue"
    nowhere: Stage = ""
    start = State((queued,) * count, (0,) * count, stages=(nowhere,) * count, pulled=(0,) * count)
    before: defaultdict[State, list[State]] = defaultdict(list)  # by steps of the owner while all is well
    seen = set()

    def steps(s: State) -> Iterator[Step]:
        seen.add(s)
        for label, after in by_itself(s, rules):
            after = same(after)
            before[after].append(s)
            yield label, after
        for label, after in faults(s, rules, back):
            yield label, same(after)

    what, how, states = search(start, steps, lost, limit)
    if what is not None or how != "every state":
        return what, how, states
    ending = [s for s in seen if set(s.places) == {"gone"}]
    ends = set(ending)
    while ending:
        new = [s for s in before[ending.pop()] if s not in ends]
        ends.update(new)
        ending += new
    if stuck := seen - ends:
        return search(start, steps, lambda s: "something waits forever" if s in stuck else None, limit)
    return None, how, states
