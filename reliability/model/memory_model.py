"""A model of how a queue remembers an ended id, by the id, its business key and its topic, while the same calls are repeated.

    .venv/bin/python -m reliability.model memory

Two calls schedule one id. The first call gives it the key a and the topic of one tenant. The second one gives it the key b
and the topic of another tenant, and has `again`: it may lift a cancel. It may be repeated, as its replies may be lost. The
undo of a run lifts its own cancels for everybody. Each tenant asks how the id ended. A step is one Redis script, one send,
or the end of the window. Between the end of the window and the script that forgets the id, Redis still has an answer that
no caller may get. `protocol_model.py` models due times and owners; here a message is pulled at any time, and stays exposed
then. `call_model.py` has the calls that move a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

Step = tuple[str, "State"]
How = Literal["delivered", "cancelled", "removed_in_flight"]

MAX_MADE = 3
#: The key that each call gives.
KEYS = {"first": "a", "second": "b"}
#: The topic that each call gives, and its tenant with it.
TOPICS = {"first": "orders", "second": "reviews"}


class Rules(Struct, frozen=True):
    member_stays: bool = True  # the member of the index stays as long as the id is remembered
    member_goes: bool = True  # ... and is removed when the id is forgotten
    made_forgets: bool = True  # an id that is scheduled again is forgotten first, with its keys
    again_if_certain: bool = True  # `again` lifts a certain cancel only; False: also one that was in flight
    again_asks: bool = True  # ... and looks at how the id ended; False: it schedules every id that is not live
    undo_if_certain: bool = True  # an undo frees the ids that it cancelled for certain only; False: also others
    topic_stays: bool = True  # the topic is remembered with the id; False: with a cancel, it is forgotten
    topic_of_message: bool = True  # ... it is that of the message that ended; False: that of the first one with this id
    by_topic: bool = True  # a tenant learns the end by the topic; False: whoever asks by the id


class Message(Struct, frozen=True, cache_hash=True, gc=False):
    generation: int
    key: str


class Ending(Struct, frozen=True, cache_hash=True, gc=False):
    """How the id ended. `over`: the window has passed, and nothing has forgotten it yet; `free`: anybody may have it."""

    how: How
    free: bool = False
    over: bool = False


class State(Struct, frozen=True, cache_hash=True, gc=False):
    message: Message | None = None
    final: Ending | None = None
    ended_key: str | None = None  # the key that is remembered with the id
    ended_topic: str | None = None  # the topic that is remembered with it
    index: frozenset[str] = frozenset()  # the keys by which the id is found
    made_by: tuple[str, ...] = ()  # the call that made each generation
    pulled: frozenset[int] = frozenset()  # generations that an owner has
    exposed: frozenset[int] = frozenset()  # generations that an owner had
    delivered: frozenset[int] = frozenset()
    promised: int = 0  # the first generation since the window passed last: what was made before may go again


def steps(s: State, rules: Rules) -> Iterator[Step]:
    for call, key in KEYS.items():
        if s.message is None and len(s.made_by) < MAX_MADE and _may_be_made(s, call, rules):
            before = _forgotten(s, rules) if rules.made_forgets else s
            yield (
                f"the {call} call schedules it",
                replace(
                    before,
                    message=Message(len(s.made_by), key),
                    index=before.index | {key},
                    made_by=(*s.made_by, call),
                ),
            )
    if s.message is not None:
        generation = s.message.generation
        yield "it is pulled", replace(s, pulled=s.pulled | {generation}, exposed=s.exposed | {generation})
        certain = generation not in s.exposed
        how: How = "cancelled" if certain else "removed_in_flight"
        yield "it is cancelled", _end(s, how, rules)
        undone = _end(s, how, rules)
        yield "it is undone", replace(undone, final=Ending(how, free=certain or not rules.undo_if_certain))
    for generation in s.pulled:
        sent = replace(s, delivered=s.delivered | {generation})
        yield f"{generation} is sent, and its owner dies", replace(sent, pulled=s.pulled - {generation})
        settled = replace(sent, pulled=s.pulled - {generation})
        if s.message is not None and s.message.generation == generation:
            settled = _end(settled, "delivered", rules)
        yield f"{generation} is sent and settled", settled
    if s.final is not None:
        if not s.final.over:
            yield "the window passes", replace(s, final=replace(s.final, over=True), promised=len(s.made_by))
        yield "the id is forgotten", replace(_forgotten(s, rules), promised=len(s.made_by))


def _may_be_made(s: State, call: str, rules: Rules) -> bool:
    if s.final is None or s.final.over or s.final.free:
        return True
    if call == "first":
        return False
    if not rules.again_asks:
        return True
    lifted: tuple[How, ...] = ("cancelled",) if rules.again_if_certain else ("cancelled", "removed_in_flight")
    return s.final.how in lifted


def _end(s: State, how: How, rules: Rules) -> State:
    assert s.message is not None
    if s.final is not None:
        raise Broken("a message that lives is found as one that has ended")
    index = s.index if rules.member_stays else s.index - {s.message.key}
    topic: str | None = TOPICS[s.made_by[s.message.generation if rules.topic_of_message else 0]]
    if not rules.topic_stays and how != "delivered":
        topic = None
    return replace(s, message=None, final=Ending(how), ended_key=s.message.key, ended_topic=topic, index=index)


def _forgotten(s: State, rules: Rules) -> State:
    index = s.index - {s.ended_key or ""} if rules.member_goes else s.index
    return replace(s, final=None, ended_key=None, ended_topic=None, index=index)


def _tenants_who_learn(s: State, rules: Rules) -> set[str]:
    """The tenants who learn how the id ended."""
    return {topic for topic in TOPICS.values() if not rules.by_topic or topic == s.ended_topic}


def wrong(s: State, rules: Rules) -> str | None:
    by_call = [s.made_by[generation] for generation in s.delivered if generation >= s.promised]
    if len(by_call) != len(set(by_call)):
        return "a call that was repeated is delivered twice"
    if s.message is not None and s.final is not None:
        return "a message that lives is found as one that has ended"
    if s.final is not None and not s.final.over:
        learn, tenant = _tenants_who_learn(s, rules), TOPICS[s.made_by[-1]]
        if tenant not in learn:
            return "a key with rights on the topic does not learn the end"
        if learn != {tenant}:
            return "a key of another tenant learns the end"
    found = {s.message.key} if s.message is not None else set()
    if s.final is not None and s.ended_key is not None:
        if s.ended_key not in s.index and not s.final.over:
            return "the id is remembered, and its key is not"
        found.add(s.ended_key)
    if not s.index <= found:
        return "a key leads to an id that nobody knows"
    return None


def check(rules: Rules, limit: int = 400_000) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    return search(State(), lambda s: steps(s, rules), lambda s: wrong(s, rules), limit)
