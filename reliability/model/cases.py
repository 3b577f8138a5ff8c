"""Every model with the worlds in which it is searched, and the broken variants that the search must refute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from reliability.model import (
    call_model,
    consumer_model,
    deadline_model,
    group_model,
    hold_model,
    memory_model,
    parking_model,
    pause_model,
    protocol_model,
    record_model,
    reshard_model,
    wake_model,
)

#: The violation or None, the steps that lead to it or how far the search went, and the number of states.
Result = tuple[str | None, str, int]
#: Searches by these rules. Keys are fields of the model's `Rules` that differ from the rules.
Search = Callable[[Mapping[str, bool]], Result]


@dataclass(frozen=True)
class Variant:
    """A model with one rule changed: `rules` are the fields of `Rules`, `finds` is part of the violation that must be found.

    An empty `finds` means that the model holds without the rule. `worlds` are all of the model if it is empty.
    """

    name: str
    rules: Mapping[str, bool]
    finds: str
    worlds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """A model: its rules, and the worlds that its search covers. All worlds at once would have too many states."""

    name: str
    rules: tuple[str, ...]
    worlds: Mapping[str, Search]
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Finding:
    """The result of a search of some worlds: the first violation, or none."""

    states: int
    violation: str = ""
    steps: str = ""
    complete: bool = True


def search_worlds(model: Model, rules: Mapping[str, bool], worlds: tuple[str, ...] = ()) -> Finding:
    """Search the worlds in their order until one of them has a violation."""
    states = 0
    for world in worlds or tuple(model.worlds):
        violation, steps, seen = model.worlds[world](rules)
        states += seen
        if violation is not None:
            return Finding(states, violation, steps)
        if steps != "every state":
            return Finding(states, complete=False)
    return Finding(states)


def _searches(check: Callable[..., Result], rules: type, worlds: Mapping[str, Mapping[str, Any]]) -> dict[str, Search]:
    """A search for each world, given what `check` is called with besides the rules."""

    def search(given: Mapping[str, Any], changed: Mapping[str, bool]) -> Result:
        return check(rules(**changed), **given)

    return {name: partial(search, given) for name, given in worlds.items()}


def _fields(rules: type) -> tuple[str, ...]:
    """The names of the rules."""
    return tuple(rules.__annotations__)


def _without(finds: str, **names: str) -> tuple[Variant, ...]:
    """Variants without one rule each, by the field of the rule."""
    return tuple(Variant(name, {rule: False}, finds) for rule, name in names.items())


_NOT_CERTAIN = "cancelled for certain"
_GONE = "is gone and was never delivered"
_BEHIND = "takes effect behind a newer one"
_NOT_DONE = "'not done' is answered for a change that took effect"
_OVERTAKES = "1 overtakes 0"
_FOR_EVER = "something waits forever"
_HANDED_OUT = "handed out after a pause was answered"
_TWICE = "an id is live twice"
_NOWHERE = "a message is where nobody pulls"

PROTOCOL = Model(
    "protocol",
    _fields(protocol_model.Rules),
    _searches(
        protocol_model.check,
        protocol_model.Rules,
        {
            "one id that is scheduled twice": {"ids": 1, "reuse": True, "limit": 400_000},
            "two ids": {"ids": 2, "reuse": False, "limit": 400_000},
        },
    ),
    (
        Variant("no fencing (only more duplicates)", {"fence": False}, ""),
        *_without(
            "delivered after it was cancelled for certain",
            watermark="no watermark",
            remember_exposed="forgetting exposed messages",
            lower_exposes="lowering the watermark without exposing",
        ),
        *_without(_GONE, compare_generation="settling by id alone", forward_before_remove="removing before delivering"),
        Variant(
            "a rank as offset",
            {"due_as_offset": False},
            "a due message is behind the offset and nothing is in flight",
        ),
        Variant("epochs that do not name who claims", {"own_epochs": False}, "two nodes own the queue under one epoch"),
    ),
)

DEADLINE = Model(
    "deadline",
    _fields(deadline_model.Rules),
    _searches(deadline_model.check, deadline_model.Rules, {"every change": {}}),
    (
        *_without(
            _BEHIND,
            deadline="no deadline",
            no_later="a deadline later than the caller waits",
            at_least="the largest lead that the clock of Redis can have",
            asks_first="asking the clock along with the change",
            newest="older answers of the clock while they fit",
        ),
        *_without(
            _NOT_DONE,
            lost_is_unknown="'not done' though it was sent",
            repeated_is_unknown="'not done' though it was sent before",
        ),
        Variant("a clock that is set back on the way", {"set_back": True}, _BEHIND),
        Variant("a request that outlives its connection", {"outlives": True}, _BEHIND),
    ),
)

HOLD = Model(
    "hold",
    _fields(hold_model.Rules),
    _searches(
        hold_model.check,
        hold_model.Rules,
        {name: {"world": world, "limit": 400_000} for name, world in hold_model.WORLDS.items()},
    ),
    (
        *_without(
            _OVERTAKES,
            behind="a pull that takes what comes behind the set of its topic",
            reads_first="a release that takes what the pulls have not come to",
            looks_again="an owner that does not look again after an unheard call",
            incarnation="no incarnations of an owner",
            waits="a released message that passes what is parked of its key",
            follows="a message that passes one that is about to be parked",
        ),
        *_without("0 may be sent while its topic is paused", drops="sending what waited when its topic was paused"),
        *_without(
            "0 may be sent while its topic is paused",
            judges="a release of what is paused",
            gates="a release of another set that passes what the topic holds",
        ),
        *_without("0 is sent twice", keeps="a pull that parks what its owner is sending"),
        *_without(_FOR_EVER, spares="a forced message that its own topic holds"),
    ),
)

_OWN_ID, _MADE_ID = "an id of a caller", "an id that delayq made"

CALLS = Model(
    "calls",
    _fields(call_model.Rules),
    _searches(call_model.check, call_model.Rules, {_OWN_ID: {"given": True}, _MADE_ID: {"given": False}}),
    (
        Variant(
            "calls that are distinguished by what they do", {"by_name": False}, "that did nothing is answered as done"
        ),
        Variant("a late copy that moves the message again", {"asks_first": False}, "a call changes a message twice"),
        Variant("an id that is forgotten before its calls", {"keeps_id": False}, "that nobody knows", (_MADE_ID,)),
        Variant("calls that outlive their id", {"forgets": False}, "calls are remembered of an id that nobody knows"),
        Variant(
            "an id that is scheduled again with the calls of its former message",
            {"made_forgets": False},
            "that did nothing is answered as done",
        ),
        Variant(
            "calls that are kept where Redis does not go back",
            {"goes_back": False},
            "that did nothing is answered as done",
        ),
    ),
)

MEMORY = Model(
    "memory",
    _fields(memory_model.Rules),
    _searches(memory_model.check, memory_model.Rules, {"one id and two calls": {}}),
    (
        *_without("the id is remembered, and its key is not", member_stays="a key that is forgotten before the id"),
        *_without("a key leads to an id that nobody knows", member_goes="a key that outlives the id"),
        *_without(
            "a message that lives is found as one that has ended",
            made_forgets="an id that is scheduled again and stays remembered",
        ),
        *_without(
            "a call that was repeated is delivered twice",
            again_if_certain="a cancel that is lifted though the message was in flight",
            again_asks="a repeated call that lifts any end",
            undo_if_certain="an undo that frees the id of a message that was in flight",
        ),
        *_without(
            "with rights on the topic does not learn the end", topic_stays="a topic that is forgotten by a cancel"
        ),
        *_without(
            "with rights on the topic does not learn the end",
            topic_of_message="the topic of a former message with the id",
        ),
        *_without("a key of another tenant learns the end", by_topic="an end that everybody learns by the id"),
    ),
)

PARKING = Model(
    "parking",
    _fields(parking_model.Rules),
    _searches(
        parking_model.check,
        parking_model.Rules,
        {
            "two messages": {"count": 2, "back": False, "limit": 100_000},
            "a message, and a Redis that goes back": {"count": 1, "back": True, "limit": 100_000},
        },
    ),
    (
        *_without(
            _OVERTAKES,
            incarnation="no incarnations of an owner",
            again="no pull from the head after an unheard outcome",
            note="parking without a note of the place",
            upto="a release of what the pulls have not come to, out of the set of a target",
            dropped="a release from behind a message that was delivered now",
            once="a batch that the store may send twice",
        ),
        *_without(_FOR_EVER, look="names of parked sets that nobody compares"),
    ),
)


def _pause(rule: str, name: str, world: str, finds: str) -> Variant:
    """A variant whose violation shows in this world."""
    return Variant(name, {rule: False}, finds, (world,))


PAUSE = Model(
    "pause",
    _fields(pause_model.Rules),
    _searches(
        pause_model.check,
        pause_model.Rules,
        {
            name: {"world": world, "limit": 1_100_000}
            for name, world in zip(
                ("truth", "again", "both", "lost", "falling", "twice", "versions"), pause_model.WORLDS, strict=True
            )
        },
    ),
    (
        Variant("scripts of any version (an owner then learns of a change later)", {"version": False}, ""),
        Variant(
            "a pull of any version that hands out what its owner does not pause",
            {"version": False, "judges": False},
            _HANDED_OUT,
            ("truth",),
        ),
        Variant(
            "a release of any version that hands out what its owner does not pause",
            {"version": False, "releases": False},
            _HANDED_OUT,
            ("truth",),
        ),
        _pause("upwards", "applying an earlier version", "both", _HANDED_OUT),
        _pause("last", "answering before the queue has the pause", "truth", _HANDED_OUT),
        _pause("watermark", "a mark of now alone", "truth", _NOT_CERTAIN),
        _pause("lowered", "a mark by the watermark as it is now", "truth", _NOT_CERTAIN),
        _pause("earliest", "the latest mark", "both", "in flight, though it has been held since before it was due"),
        _pause("active", "a mark that outlives its pause", "again", _NOT_CERTAIN),
        _pause("exposes", "forcing a message without exposing it", "truth", _NOT_CERTAIN),
        _pause("applies", "an owner that does not apply a change", "truth", "it waits forever"),
        _pause("raises", "policies that stay below a queue's version", "versions", "it waits forever"),
        _pause("own", "a version without digits of its own", "lost", _HANDED_OUT),
        _pause("again", "an owner that applies policies which may be lost", "twice", _HANDED_OUT),
    ),
)

_RESHARD, _WITH_PAUSE = "two clients", "a pause"


def _reshard(rule: str, name: str, finds: str, world: str = _RESHARD) -> Variant:
    """A variant whose violation shows in this world."""
    return Variant(name, {rule: False}, finds, (world,))


RESHARD = Model(
    "reshard",
    _fields(reshard_model.Rules),
    _searches(
        reshard_model.check,
        reshard_model.Rules,
        {_RESHARD: {}, _WITH_PAUSE: {"world": reshard_model.PAUSED}},
    ),
    (
        _reshard("list_first", "closing before listing", "there is no place to go on"),
        _reshard("ask_the_old", "writing the new place without asking the old one", _TWICE),
        _reshard("oldest_first", "asking the newest layout first", _TWICE),
        _reshard("lookups_move", "closed queues that say not_found", "look answers not_found for an existing message"),
        _reshard("drop_empty", "dropping a layout that holds messages", _NOWHERE),
        _reshard(
            "drop_forgotten",
            "dropping a layout that remembers ids",
            "an id that has ended within the window is scheduled again",
        ),
        _reshard(
            "lifted_forgotten",
            "a closed queue that keeps a cancel which was lifted",
            "answers an end for an existing message",
        ),
        _reshard("drop_closed", "dropping a layout that is open", _NOWHERE),
        _reshard("keep_closed", "dropped queues that look open", _NOWHERE),
        _reshard("skip_only_shut", "new ids straight into the newest layout", _TWICE),
        *(
            _reshard(rule, name, "a message is handed out after its pause was answered", _WITH_PAUSE)
            for rule, name in (
                ("policies_before_close", "closing before the new queues have the policies"),
                ("policies_to_all", "policies for the newest queues alone"),
                ("list_behind", "a list that was read before the pause was set"),
            )
        ),
    ),
)

WAKE = Model(
    "wake",
    _fields(wake_model.Rules),
    _searches(wake_model.check, wake_model.Rules, {"every wake": {}}),
    _without(
        "a due message waits, and its owner sleeps",
        wake_moves="a wake that neither pulls nor moves the next look",
        wake_rewinds="a wake that leaves the offset where it is",
        answer_keeps_wakes="an answer that takes back a wake",
        sleeps_by_script="a pull that does not write what its owner sleeps for",
    ),
)

_TWO_LEASES = "two consumers have a valid lease of one message"
_ACKNOWLEDGED = "an acknowledged message is received again"
_LATE, _TWO_MESSAGES, _FOR_LONG, _SAME_NAME, _EXTENDED, _FAILOVER, _DEAD, _ = consumer_model.WORLDS


def _consumer(rule: str, name: str, finds: str, world: str = _LATE) -> Variant:
    """A variant whose violation shows in this world."""
    return Variant(name, {rule: False}, finds, (world,))


CONSUMER = Model(
    "consumer",
    _fields(consumer_model.Rules),
    _searches(
        consumer_model.check,
        consumer_model.Rules,
        {name: {"world": world} for name, world in consumer_model.WORLDS.items()},
    ),
    (
        _consumer("compares", "an act that does not compare the call of the lease", _TWO_LEASES, _EXTENDED),
        _consumer("ends", "a receive that ignores when leases end", _TWO_LEASES),
        _consumer("from_sending", "a consumer that counts its lease from the answer", _TWO_LEASES, _EXTENDED),
        _consumer("still", "a repeated call that receives what it does not hold", _ACKNOWLEDGED),
        _consumer("again", "a receive of new messages only", "does not receive a message that is left"),
        _consumer("new_names", "a name for all calls of a consumer", _TWO_LEASES, _SAME_NAME),
        _consumer("repeats", "a repeated call that leases others", "whose caller does not know it", _TWO_MESSAGES),
        _consumer("lasts", "a call that Redis forgets when its first lease ends", "does not know it", _FOR_LONG),
        _consumer("forgets", "a call that Redis never forgets", "remembers a call that holds nothing"),
        _consumer("ack_again", "a repeated acknowledgement that is lost", "that was repeated is lost"),
        _consumer("back_once", "a repeated hand-back that counts again", "a hand-back counts twice"),
        _consumer("pauses", "a hand-back without its pause", "received before its pause ends"),
        _consumer("dead_first", "an acknowledgement before the dead letter", "a message is lost", _DEAD),
        _consumer("confirms", "an answer that waits for no replica", _TWO_LEASES, _FAILOVER),
        _consumer("dead_confirms", "a dead letter that no replica has", "a message is lost", _DEAD),
    ),
)

_REPLY = "with a record for each entry it is"
_TRIMMED = "a trim removes a message that is not acknowledged"

RECORDS = Model(
    "records",
    _fields(record_model.Rules),
    _searches(record_model.check, record_model.Rules, {"both forms": {}}),
    (
        Variant("an act on a part of a record that it does not split", {"splits": False}, _REPLY),
        Variant("a split that forgets an entry", {"complete": False}, _TRIMMED),
        Variant("a split with a new lease", {"same_end": False}, _REPLY),
        Variant("an acknowledgement of a part that ends the record", {"all_of_it": False}, _TRIMMED),
        Variant("a receive of the first entry of an ended record", {"splits_ended": False}, _REPLY),
        Variant("a repeated call that does not find its record", {"finds_again": False}, _REPLY),
        Variant("a record whose last entry is pending", {"own_first": False}, _TRIMMED),
    ),
)

_PASSES, _TRIMS = "a group passes an entry", "a trim removes an entry that the group has not received"
_OLDER, _NO_RECORD = "a group that begins at the end receives an older entry", "a group in Redis has no record"


def _group(rule: str, name: str, finds: str, world: str) -> Variant:
    """A variant whose violation shows in this world."""
    return Variant(name, {rule: False}, finds, (world,))


GROUPS = Model(
    "group",
    _fields(group_model.Rules),
    _searches(
        group_model.check,
        group_model.Rules,
        {name: {"world": world} for name, world in group_model.WORLDS.items()},
    ),
    (
        _group("all_streams", "a first call that makes the group in the streams that it asks", _OLDER, "first calls"),
        _group("looks", "a group made at the end of the moment", _PASSES, "a reshard"),
        _group("from_zero", "a known group that begins at its start in new streams", _PASSES, "a reshard"),
        _group("unmade", "a record that counts before the group is in all streams", _OLDER, "first calls"),
        _group("compares", "a delete of a record that it has not read", _NO_RECORD, "two deletes"),
        _group("confirms", "a record that is written before the groups alone", _PASSES, "a reshard"),
        _group("renames", "a record that looks the same behind the groups", _NO_RECORD, "two deletes"),
        _group("asks", "a call that asks the streams alone whether its group is known", _PASSES, "a reshard"),
        _group("trim_asks", "a trim that asks the groups in Redis alone", _TRIMS, "a reshard, and trims"),
        _group("notes_first", "a trim behind records that were read before", _TRIMS, "a reshard, and trims"),
    ),
)

MODELS = {
    model.name: model
    for model in (PROTOCOL, DEADLINE, RESHARD, PAUSE, HOLD, CALLS, MEMORY, PARKING, WAKE, CONSUMER, GROUPS, RECORDS)
}
