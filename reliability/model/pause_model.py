"""Pauses and their version, checked over the interleavings of two nodes, the callers that pause and resume, and a message.

    .venv/bin/python -m reliability.model pause

A step is one script, one send, or one event. Two pauses, `a` and `b`, cover the topic of the one message. A change first
raises the version in the policies and is then applied to the queue, which keeps a mark with each pause. The caller may die in
between, or its second script may be delayed for any time. The scripts that hand messages out use the pauses of the queue. A
pull moves a paused message into the set of its topic. A release takes it out and hands it out in one step, and its reply may
be lost. The target may fail. Both clocks may go back once. The server of the policies may once lose its last changes, while
the queue's does not (a cluster). From each state a message without a pause must end without another fault.
Not modelled: order (`hold_model.py`), late replies of an owner (`parking_model.py`), several queues: each is as this one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

Step = tuple[str, "State"]
Place = Literal["", "queue", "held", "parked", "gone"]  # '': not scheduled yet
Stage = Literal["", "going", "sent"]  # of a message in a node's memory

LAST_TICK, MAX_RETRIES, MAX_MOVES = 1, 1, 1
NODES = (0, 1)


class World(Struct, frozen=True):
    """The possible events: all of them at once would be too many states."""

    changes: int
    pauses: tuple[str, ...] = ("a",)
    moves: bool = False  # the message is moved or delivered now, its target fails, the clocks go back
    loses: int = 0  # the server of the policies loses so many of its last changes at most
    falling: bool = False  # of two changes with one number the later one has the smaller digits
    takes_over: bool = False  # the other node claims the queue, the first one lives on or dies


TRUTH = World(changes=2, moves=True)
AGAIN = World(changes=3)
BOTH = World(changes=3, pauses=("a", "b"))
LOST = World(changes=3, pauses=("a", "b"), loses=1)
FALLING = World(changes=3, pauses=("a", "b"), loses=1, falling=True)
TWICE = World(changes=3, loses=2)
VERSIONS = World(changes=2, loses=1, takes_over=True)
WORLDS = (TRUTH, AGAIN, BOTH, LOST, FALLING, TWICE, VERSIONS)


class Rules(Struct, frozen=True):
    version: bool = True  # a script that does not name the queue's version changes nothing
    judges: bool = True  # a script hands out what the queue does not pause; False: what its owner does not pause
    releases: bool = True  # ... also a release; False: a release uses the owner's knowledge
    upwards: bool = True  # a change is applied only if its number is greater than what the queue has
    last: bool = True  # who changes is answered once the queue has it; False: once the policies have it
    watermark: bool = True  # the mark is the later of now and the watermark; False: now
    lowered: bool = True  # ... and of what the watermark ever was; False: as it is now
    earliest: bool = True  # of several pauses the earliest mark counts; False: the latest
    active: bool = True  # a mark ends with its pause; False: the next such pause has it again
    own: bool = True  # a version has digits of its own; False: it is the number before it + 1, and no more
    exposes: bool = True  # delivering one now in spite of a pause makes it exposed
    applies: bool = True  # an owner whose queue has not got the change applies it
    again: bool = True  # ... once it has read the policies again; False: they may have lost what it knows
    raises: bool = True  # a caller or node that finds a version which the policies may have lost raises theirs above it


#: A number, and digits of the change.
Version = tuple[int, int]


class Policies(Struct, frozen=True, cache_hash=True, gc=False, order=True):
    version: Version = (0, 0)
    pauses: tuple[str, ...] = ()


class Change(Struct, frozen=True, cache_hash=True, gc=False, order=True):
    """A change on its way to the queue. Its caller waits for the answer, unless the caller died."""

    policies: Policies
    waited_for: bool
    made: int  # which change it is


class Node(Struct, frozen=True, cache_hash=True, gc=False):
    epoch: int = 0  # 0: owns nothing
    policies: Policies = Policies()
    stage: Stage = ""
    generation: int = 0
    due: int = 0


class State(Struct, frozen=True, cache_hash=True, gc=False):
    # the policies
    policies: Policies = Policies()
    before: tuple[Policies, ...] = ()  # what the server of the policies may fall back to
    made: int = 0  # changes
    lost: bool = False
    changes: frozenset[Change] = frozenset()
    # the queue
    version: Version = (0, 0)
    pauses: tuple[str, ...] = ()
    marks: tuple[tuple[str, int], ...] = ()
    epoch: int = 0
    watermark: int = -1
    highest: int = -1  # what the watermark ever was
    # the message
    place: Place = ""
    due: int = 0
    generation: int = 0
    exposed: bool = False
    forced: bool = False
    # the world
    now: int = 0
    went_back: bool = False
    nodes: tuple[Node, ...] = (Node(),) * len(NODES)
    claims: int = 0
    deaths: int = 0
    retries: int = 0
    moves: int = 0
    promised: bool = False  # a pause was answered, and nobody has asked for its end
    opened: int = 0  # the latest change behind which nothing is paused
    forwarded: frozenset[int] = frozenset()  # generations
    hard: frozenset[int] = frozenset()  # cancelled or moved: must never be delivered


def put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


# -- what Redis does ---------------------------------------------------------------------------------------------------


def apply(s: State, policies: Policies, rules: Rules) -> State:
    """Apply a change to the queue. A pause that existed before keeps its mark."""
    if policies.version == s.version or (policies.version[0] <= s.version[0] and rules.upwards):
        return s
    floor = max(s.now, (s.highest if rules.lowered else s.watermark) if rules.watermark else -1)
    known = dict(s.marks)
    marks = {one: known.get(one, floor) for one in policies.pauses}
    kept = marks if rules.active else known | marks
    return replace(s, version=policies.version, pauses=policies.pauses, marks=tuple(sorted(kept.items())))


def may_be_lost(known: Version, version: Version) -> bool:
    """Whether the policies, which have this version, may have lost the change that made the known one."""
    return known != version and known[0] >= version[0]


def raises(s: State, known: Version, digits: int, rules: Rules) -> State:
    """Give the current policies a greater number than that of a lost version."""
    raised = Policies((known[0] + 1, digits if rules.own else 0), s.policies.pauses)
    return replace(s, policies=raised, before=(), opened=s.opened if raised.pauses else s.made)


def certain(s: State, rules: Rules) -> bool:
    """Whether cancel may assume that no owner was given the message."""
    if s.exposed:
        return False
    if s.place == "queue" and s.due > max(s.watermark, s.now):
        return True
    marks = [mark for one, mark in s.marks if one in s.pauses]
    return bool(marks) and s.due > (min if rules.earliest else max)(marks)


def schedules(s: State) -> Iterator[Step]:
    for due in range(s.now, min(s.now + 1, LAST_TICK) + 1):
        yield f"schedule due {due}", replace(s, place="queue", due=due, generation=1)


def callers(s: State, rules: Rules, world: World) -> Iterator[Step]:
    """Cancel, move and deliver now."""
    if s.place == "":
        yield from schedules(s)
        return
    if s.place == "gone":
        return
    gone = replace(s, place="gone", exposed=False, forced=False)
    if not certain(s, rules):
        if not s.exposed and any(s.due > mark for one, mark in s.marks if one in s.pauses):
            raise Broken("in flight, though it has been held since before it was due")
        yield "cancel: in flight", gone
    elif s.generation in s.forwarded:
        raise Broken("cancelled for certain, although it was delivered")
    else:
        hard = s.hard | {s.generation}
        yield "cancel: cancelled", replace(gone, hard=hard)
        if world.moves and s.moves < MAX_MOVES:
            moved = replace(s, place="queue", generation=s.generation + 1, hard=hard, moves=s.moves + 1)
            for due in range(s.now, LAST_TICK + 1):
                yield f"reschedule to {due}", replace(moved, due=due)
    if world.moves and s.pauses and s.place in ("queue", "held") and s.moves < MAX_MOVES:
        forced = replace(s, place="queue", due=s.now, generation=s.generation + 1, forced=True, moves=s.moves + 1)
        yield "deliver now", replace(forced, exposed=s.exposed or rules.exposes)


def changers(s: State, rules: Rules, world: World) -> Iterator[Step]:
    """Pause and resume."""
    if s.made < world.changes:
        for one in world.pauses:
            pauses = tuple(sorted({*s.policies.pauses} ^ {one}))
            digits = world.changes - s.made if world.falling else s.made + 1
            version = s.policies.version[0] + 1, digits if rules.own else 0
            before = (*s.before, s.policies)[-world.loses :] if world.loses and not s.lost else ()
            after = replace(s, policies=Policies(version, pauses), before=before, made=s.made + 1)
            if not pauses:
                after = replace(after, opened=after.made, promised=False)
            change = Change(after.policies, True, after.made)
            after = replace(after, changes=s.changes | {change})
            yield f"{'pause' if one in pauses else 'resume'} {one}", after if rules.last else answer(after, change)
    for change in s.changes:
        left = s.changes - {change}
        applied = replace(apply(s, change.policies, rules), changes=left)
        if change.waited_for:
            if applied.version == change.policies.version:
                yield f"{change.policies.version} is applied and answered", answer(applied, change)
            elif may_be_lost(s.version, s.policies.version):
                if rules.raises:
                    raised = raises(s, s.version, 20, rules)
                    again = replace(change, policies=raised.policies)
                    yield "its caller raises the policies' version", replace(raised, changes=left | {again})
            elif s.policies != change.policies:
                yield "its caller reads again", replace(s, changes=left | {replace(change, policies=s.policies)})
            yield "its caller dies", replace(s, changes=left | {replace(change, waited_for=False)})
            yield "its caller dies at once", replace(s, changes=left)
        else:
            yield f"{change.policies.version} is applied late", applied
    for kept in s.before:
        lost = replace(s, policies=kept, before=(), lost=True, promised=False, changes=frozenset())
        yield f"the policies fall back to {kept.version}", lost if kept.pauses else replace(lost, opened=s.made)


def answer(s: State, change: Change) -> State:
    return replace(s, promised=s.promised or (bool(change.policies.pauses) and change.made > s.opened))


# -- the nodes ---------------------------------------------------------------------------------------------------------


def by_itself(s: State, rules: Rules, world: World) -> Iterator[Step]:
    """The steps without a fault."""
    if s.now < LAST_TICK:
        yield "tick", replace(s, now=s.now + 1)
    for n in NODES:
        yield from node_steps(s, n, rules, world)
    if s.watermark > s.now and any(node.epoch == s.epoch != 0 for node in s.nodes):
        below = s.place == "queue" and s.due == s.watermark
        yield "the watermark is lowered", replace(s, watermark=s.watermark - 1, exposed=s.exposed or below)


def node_steps(s: State, n: int, rules: Rules, world: World) -> Iterator[Step]:
    node = s.nodes[n]

    def having(**change: Any) -> tuple[Node, ...]:
        return put(s.nodes, n, replace(node, **change))

    if node.epoch == 0:
        owned = any(other.epoch == s.epoch for other in s.nodes if other.epoch)
        if not owned or (world.takes_over and s.claims < 2):
            claimed = replace(s, epoch=s.epoch + 1, claims=s.claims + 1)
            yield f"{n} claims", replace(claimed, nodes=having(epoch=s.epoch + 1))
        return
    if rules.raises and may_be_lost(node.policies.version, s.policies.version):
        yield f"{n} raises the policies' version", raises(s, node.policies.version, 10 + n, rules)
    elif node.policies != s.policies:
        yield f"{n} reads {s.policies.version}", replace(s, nodes=having(policies=s.policies))
    elif rules.raises and may_be_lost(s.version, s.policies.version):
        yield f"{n} raises the policies' version", raises(s, s.version, 10 + n, rules)
    fresh = node.policies == s.policies or not rules.again
    if node.policies.version[0] > s.version[0] and fresh and rules.applies:
        yield f"{n} applies {node.policies.version}", apply(s, node.policies, rules)
    own = node.epoch == s.epoch
    same = s.generation == node.generation and s.due == node.due
    if own and node.stage == "" and s.due <= s.now and (not rules.version or node.policies.version == s.version):
        if s.place == "queue":
            yield f"{n} pulls", pulls(s, n, rules)
        if s.place == "held" and not (s.pauses if rules.judges and rules.releases else node.policies.pauses):
            released = hands_out(s, n)
            yield f"{n} releases it", released
            yield f"{n} releases it, and its reply is lost", replace(released, nodes=s.nodes)
    if own and s.place == "parked":
        yield f"{n} tries its target again", replace(s, place="queue", exposed=s.exposed or s.due > s.watermark)
    if node.stage == "going":
        if node.generation in s.hard:
            raise Broken("delivered after it was cancelled for certain")
        forwarded = s.forwarded | {node.generation}
        yield f"{n} forwards it", replace(s, forwarded=forwarded, nodes=having(stage="sent"))
    if node.stage == "sent":
        gone = s.place == "queue" and same
        yield f"{n} acks", replace(s, place="gone" if gone else s.place, nodes=having(stage=""))


def pulls(s: State, n: int, rules: Rules) -> State:
    paused = s.pauses if rules.judges else s.nodes[n].policies.pauses
    if not paused or s.forced:
        return hands_out(s, n)
    watermark = max(s.watermark, s.due)
    return replace(s, place="held", watermark=watermark, highest=max(s.highest, watermark))


def hands_out(s: State, n: int) -> State:
    if not s.forced and s.promised:
        raise Broken("handed out after a pause was answered")
    node = replace(s.nodes[n], stage="going", generation=s.generation, due=s.due)
    watermark = max(s.watermark, s.due)
    highest = max(s.highest, watermark)
    return replace(s, place="queue", watermark=watermark, highest=highest, nodes=put(s.nodes, n, node))


def faults(s: State, world: World) -> Iterator[Step]:
    if world.moves and s.now and not s.went_back:
        yield "both clocks go back", replace(s, now=0, went_back=True)
    for n in NODES:
        node = s.nodes[n]
        if node.epoch and world.takes_over and not s.deaths:
            yield f"{n} dies", replace(s, deaths=1, nodes=put(s.nodes, n, Node()))
        same = s.place == "queue" and s.generation == node.generation and s.due == node.due
        if world.moves and node.stage == "sent" and same and node.epoch == s.epoch:
            nodes = put(s.nodes, n, replace(node, stage=""))
            yield f"{n} parks it for its target", replace(s, place="parked", nodes=nodes)
            if s.retries < MAX_RETRIES and s.now < LAST_TICK:
                again = replace(s, due=s.now + 1, exposed=True, forced=False, retries=s.retries + 1, nodes=nodes)
                yield f"{n} retries it", again


def same(s: State) -> State:
    """Epochs by rank, without values that no longer decide anything."""
    epochs = sorted({0, s.epoch, *(node.epoch for node in s.nodes)})
    nodes = tuple(
        replace(
            node,
            epoch=epochs.index(node.epoch),
            generation=node.generation if node.stage else 0,
            due=node.due if node.stage else 0,
        )
        for node in s.nodes
    )
    held = {node.generation for node in nodes if node.stage}
    return replace(
        s, epoch=epochs.index(s.epoch), nodes=nodes, forwarded=s.forwarded & {s.generation}, hard=s.hard & held
    )


def check(rules: Rules, world: World, limit: int) -> tuple[str | None, str, int]:
    """The broken rule (None: nothing) in such a world, the steps to it, and the number of states."""
    before: defaultdict[State, list[State]] = defaultdict(list)  # by steps while all is well
    seen = set()

    def steps(s: State) -> Iterator[Step]:
        seen.add(s)
        if s.place == "gone" and not s.hard:
            return  # nothing is left that could break
        for label, after in by_itself(s, rules, world):
            after = same(after)
            before[after].append(s)
            yield label, after
        for some in (callers(s, rules, world), changers(s, rules, world), faults(s, world)):
            for label, after in some:
                yield label, same(after)

    what, how, states = search(State(), steps, lambda _: None, limit)
    if what is not None or how != "every state":
        return what, how, states
    ending = [s for s in seen if s.place in ("", "gone") or s.policies.pauses]
    ends = set(ending)
    while ending:
        new = [s for s in before[ending.pop()] if s not in ends]
        ends.update(new)
        ending += new
    if stuck := seen - ends:
        return search(State(), steps, lambda s: "it waits forever" if s in stuck else None, limit)
    return None, how, states
