"""Plans that lease messages of a topic to a consumer, and settle these leases."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal
from zlib import crc32

import msgspec
from msgspec.structs import replace

from delayq.base.errors import Conflict, DelayqError, InvalidMessage, OtherFilter, StoreError, StoreUnavailable
from delayq.base.times import LATEST, Instant
from delayq.client.consuming.giving_up import give_up, letter_of
from delayq.client.consuming.groups import (
    NewGroup,
    check_group,
    field_of,
    known_queues,
    make_group,
    no_stream,
    own_name,
    record_of,
)
from delayq.client.handshake import learn_policies, learn_routes
from delayq.client.plan import Context, Plan
from delayq.domain.message import check_call, check_topic, given_instant, text_of, value_of
from delayq.domain.patterns import is_pattern
from delayq.domain.policies import Policy
from delayq.store import commands
from delayq.store.commands import (
    MOST_RECEIVED,
    MOST_RECEIVED_BYTES,
    Act,
    Command,
    FilterOfGroup,
    Lease,
    ReceivedEntries,
    Settled,
    StreamEntry,
    UnknownGroup,
)
from delayq.store.keys import ConsumerKeys, new_id, queue_keys, slot_tag

#: ms after which a message that was handed back is received again: RocketMQ's delay levels 3 to 18, the last one repeats.
HAND_BACK_DELAYS: Final = (
    10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000,
    1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip
#: How long a lease lasts unless the consumer chooses another one, and how short and how long it may be (ms).
LEASE: Final = 30_000
SHORTEST_LEASE: Final = 1_000
LONGEST_LEASE: Final = 12 * 3_600_000
#: The most tags of a filter, and the most bytes of all of them: each group keeps its filter in Redis.
MOST_TAGS: Final = 100
MOST_TAGS_BYTES: Final = 4_096
#: After so many hand-backs, and after so many leases that ended, a message becomes a dead letter unless its policy differs.
MOST_HAND_BACKS: Final = 16
MOST_ENDED_LEASES: Final = 16
MOST_REASON: Final = 200
#: A call looks so often for other messages if it has received only entries that delayq did not write.
ROUNDS: Final = 8
#: Without these fields an entry is no message.
_NEEDED: Final = ("id", "topic")
#: The most bytes of fields of a message. Longer ones are of no message, and no dead letter can have them.
_LONGEST: Final[Mapping[str, int]] = {"topic": 255, "tags": 255, "orderingKey": 255, "keys": 40_000}
_LONGEST_PROPERTY: Final = 40_000
#: A queue or nothing, an entry, a call. Then the mark of the call, and over HTTP also that of the message. A lease of a former
#: version has no mark.
_TOKEN: Final = re.compile(r"\d{0,9}\.\d{1,20}-\d{1,20}\.[A-Za-z0-9_:-]{1,64}(?:\.[0-9a-f]{16}(?:[0-9a-f]{8})?)?")
#: The lengths of the making of the group, of the mark of a call, and of both marks.
_MAKING, _MARK, _MARKS = 8, 16, 24
_ENTRIES: Final = re.compile(r"\d{1,20}-\d{1,20}(?: \d{1,20}-\d{1,20})*")
_DONE: Final = {"ack": "acknowledged", "extend": "extended", "back": "handedBack", "release": "released"}
_START: Final[Mapping[str, str]] = {"beginning": "0", "end": "$"}


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group of a topic. `start` is where a new group begins: 'beginning', 'end' or Unix ms.

    `tags` are the filter of the group: only messages with one of these tags are received. Without tags all are.
    `reserved` are keys by which delayq counts the dead letters that this consumer makes.
    """

    topic: str
    group: str
    start: str | int = "beginning"
    tags: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    key: str = ""

    def check(self) -> None:
        """Raise InvalidMessage for a topic, group, start or tag that is not allowed."""
        if is_pattern(self.topic):
            raise InvalidMessage("topic", "must be one topic, because a call receives no pattern of topics: name it")
        check_topic(self.topic)
        check_group(self.group)
        if isinstance(self.start, str) and self.start not in _START:
            raise InvalidMessage("start", "is 'beginning', 'end' or a time")
        if any(not tag or "\0" in tag for tag in self.tags):
            raise InvalidMessage("tags", "no tag may be empty")
        if len(self.tags) > MOST_TAGS or sum(len(tag.encode(errors="replace")) for tag in self.tags) > MOST_TAGS_BYTES:
            raise InvalidMessage("tags", f"a filter has at most {MOST_TAGS} tags, of {MOST_TAGS_BYTES} bytes together")

    @property
    def new_group(self) -> NewGroup:
        """The group as it is made if it does not exist."""
        first = _START[self.start] if isinstance(self.start, str) else f"{self.start - 1}-{2**64 - 1}"
        return NewGroup(topic=self.topic, group=self.group, first=first, tags=self.tags, key=self.key)


def given_consumer(topic: str, group: str, start: str | Instant, tags: str | Sequence[str]) -> Consumer:
    """A consumer as a caller gives it: `start` may be a time, and `tags` may be 'paid || void', as in RocketMQ."""
    if isinstance(start, str) and start in _START:
        first: str | int = start
    else:
        first = given_instant("start", start) or 0
    if isinstance(tags, str):
        tags = () if tags in ("", "*") else [one.strip() for one in tags.split("||")]
    consumer = Consumer(topic=topic, group=group, start=first, tags=tuple(tags))
    consumer.check()
    return consumer


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a consumer leased.

    `body` is bytes; `text` and `json()` read it. `due` is its due time (Unix ms). `attempt` counts the attempts to deliver it to
    the stream. `deliveries` counts how often the group received it, and `hand_backs` how often it was handed back. `lease` names
    this lease in `ack`, `extend` and `hand_back`.
    """

    id: str
    topic: str
    group: str
    lease: str
    tags: str = ""
    keys: tuple[str, ...] = ()
    ordering_key: str = ""
    properties: dict[str, str] = {}
    body: bytes
    due: int
    attempt: int = 1
    deliveries: int = 1
    hand_backs: int = 0

    @property
    def text(self) -> str:
        """The body as text. Raises InvalidMessage if it is not UTF-8."""
        return text_of(self.body)

    def json(self) -> Any:
        """Return the value of a body that is JSON. Raises InvalidMessage for any other body."""
        return value_of(self.body)


class ReceivedPage(msgspec.Struct, frozen=True):
    """The messages that a call received, and the time of the server (`now`).

    `next` is when the next lease or pause of the group ends. New messages arrive in `streams`. All times are Unix ms.
    `lost` has the leases that were to be acknowledged and are lost, or whose acknowledgement failed.
    """

    messages: list[Leased]
    now: int
    next: int | None
    streams: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class Settlement(msgspec.Struct, frozen=True):
    """The result of a change of a lease.

    It is 'acknowledged', 'extended', 'handedBack', 'released', 'dead', or 'lost' if this consumer does not hold the lease.
    `until` is when the lease or the pause ends (Unix ms).
    """

    result: str
    until: int | None = None


def only_settlement(settled: Sequence[Settlement | DelayqError]) -> Settlement:
    """The single result of a change of one lease. Raises it if it is an error."""
    (found,) = settled
    if isinstance(found, DelayqError):
        raise found
    return found


def _streams(context: Context, topic: str) -> Plan[list[tuple[str, str]]]:
    """The places and streams of a topic. Raises InvalidMessage if its route is not a stream of delayq's own Redis."""
    if context.routes.outdated:
        yield from learn_routes(context.routes)
    route = context.routes.route_of(topic)
    if route is None:
        raise InvalidMessage("topic", f"no live worker has a route for {topic!r}")
    if route.stream is None:
        target = f"its route {route.name!r} sends to {route.target}"
        raise InvalidMessage("topic", f"{target}, not to a stream of delayq's own Redis; receive it from there")
    stream = route.stream.replace("{topic}", topic)
    if route.per_queue:
        numbers = [number for layout in context.layouts.known for number in layout.numbers]
        return [(str(number), queue_keys(number).stream(stream)) for number in numbers]
    try:
        slot_tag(stream)
    except ValueError as error:
        raise InvalidMessage("topic", f"the stream of its route {route.name!r} cannot be received: {error}") from None
    return [("", stream)]


def _older(consumer: Consumer, streams: Sequence[tuple[str, str]], queues: tuple[int, ...]) -> list[tuple[str, str]]:
    """The places and streams of a group in queues of former layouts: they may have entries that it has not received."""
    record, known = record_of(consumer.topic, consumer.group, streams), dict(streams)
    numbers = (number for number in range(queues[0], queues[1] + 1) if str(number) not in known)
    return [(str(number), queue_keys(number).stream(record.stream)) for number in numbers]


def check_receive(most: int, lease: int, call: str | None = None) -> None:
    """Raise InvalidMessage for a number of messages, a lease (ms) or a name of a call that is not allowed."""
    if not 1 <= most <= MOST_RECEIVED:
        raise InvalidMessage("max", f"is from 1 to {MOST_RECEIVED}")
    if not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
        raise InvalidMessage("lease", "is from 1 s to 12 h")
    if call is not None:
        check_call(call)


def streams_of(context: Context, consumer: Consumer) -> Plan[tuple[str, ...]]:
    """The streams in which messages for a consumer arrive."""
    return tuple(stream for _, stream in (yield from _streams(context, consumer.topic)))


def topics_beside(context: Context, topic: str) -> Plan[frozenset[str]]:
    """The topics, and patterns of topics, whose messages are in the streams of a topic. Raises InvalidMessage as `receive`."""
    yield from _streams(context, topic)
    route = context.routes.route_of(topic)
    assert route is not None
    assert route.stream is not None
    return context.routes.topics_in(route.stream.replace("{topic}", topic), per_queue=route.per_queue)


def receive(
    context: Context,
    consumer: Consumer,
    most: int,
    lease: int,
    call: str | None = None,
    ack: Sequence[str] = (),
    *,
    is_new: bool = False,
) -> Plan[ReceivedPage]:
    """Lease at most so many messages of a topic for `lease` ms.

    A call of the same name as one that still holds messages is a repeat: it gets these in all streams, and leases no others. A
    call without a name, or one that `is_new`, is none. The leases of `ack` are acknowledged before, in the same packet. Raises
    OtherFilter if the group has another filter, and a StoreError if no stream could be asked.
    """
    check_receive(most, lease, call)
    streams = yield from _streams(context, consumer.topic)
    if queues := (yield from known_queues(context, consumer, streams)):
        streams += _older(consumer, streams, queues)
    yield from learn_policies(context.policies)
    given = context.policies.policy(consumer.topic).max_deliveries
    most_leases = MOST_ENDED_LEASES if given is None else given
    several = len(streams) > 1
    may_repeat = call is not None and not is_new and several
    this = _Call(consumer, streams, call or new_id(), lease, most_leases)
    if ack:
        this.ack(ack)
    if may_repeat:
        yield from _take_held(context, this)
    for _ in range(ROUNDS):
        left = [] if this.is_answered else this.streams_in_turn() if several else streams
        while left and (room := most - len(this.messages) - len(this.spent)) > 0:
            shares = _shares(left, room, this.bytes_left, len(streams)) if several else [_Share(left[0], room)]
            left = left[len(shares) :]
            yield from _take(context, this, shares)
        if not this.foreign:
            break
        yield from _skip(consumer, streams, this.foreign)
        this.foreign.clear()
    large = [place for place, then in this.soonest.items() if then <= this.now and several]
    if large and not this.is_answered:  # none of the first messages fits into the share of its stream
        yield from _take(context, this, [_Share(large[0], most)])
    if this.failed and not this.is_answered:
        raise this.failed[0]
    if this.spent:
        for one in reversed((yield from _bury(context, consumer, streams, this.spent, most_leases))):
            this.messages.insert(one.at, _received(consumer, one.place, one.entry, one.making))
    next_end = min(this.soonest.values(), default=None)
    return ReceivedPage(this.messages, this.now, next_end, tuple([stream for _, stream in streams]), tuple(this.lost))


class _Spent(msgspec.Struct, frozen=True):
    """An entry whose leases ended too often, and its place in the answer if it is received all the same."""

    place: str
    entry: StreamEntry
    making: str
    at: int


class _Call(msgspec.Struct):
    """A call that receives from streams, each with its place: what it asks, and what it has got so far.

    `acks` has the leases by stream that go before its first command, and their tokens are `acked`. The entries of `spent` have
    had too many leases, and those of `foreign` are not delayq's.
    """

    consumer: Consumer
    streams: list[tuple[str, str]]
    name: str
    lease: int
    most_leases: int
    acked: Sequence[str] = ()
    acks: dict[str, list[_Run]] = {}
    lost: list[str] = []
    messages: list[Leased] = []
    spent: list[_Spent] = []
    foreign: list[tuple[str, StreamEntry, str]] = []
    soonest: dict[tuple[str, str], int] = {}
    failed: list[DelayqError] = []
    now: int = 0

    def ack(self, tokens: Sequence[str]) -> None:
        """Acknowledge these leases before anything is received."""
        self.acked = tokens
        self.acks, lost_at = _by_stream(self.streams, tokens, [("ack", None, "")] * len(tokens))
        self.lost += [tokens[at] for at in lost_at]

    def streams_in_turn(self) -> list[tuple[str, str]]:
        """The streams. Each is first equally often, whatever the calls' names are."""
        turn = crc32(self.name.encode()) % len(self.streams)
        return self.streams[turn:] + self.streams[:turn]

    @property
    def is_answered(self) -> bool:
        """Whether the call has got messages."""
        return bool(self.messages or self.spent)

    @property
    def bytes_left(self) -> int:
        """How many bytes of messages it may get."""
        return MOST_RECEIVED_BYTES - sum(len(one.body) for one in self.messages)

    def ask(self, share: _Share) -> Command[Any]:
        """The command that receives a share of a stream."""
        return commands.receive(
            ConsumerKeys(share.place[1], self.consumer.group),
            self.consumer.group,
            self.name,
            share.most,
            self.lease,
            start="",
            tags=self.consumer.tags,
            most_deliveries=self.most_leases,
            share=share.of_bytes if len(self.streams) > 1 else None,
        )


def _answers(this: _Call, asked: Sequence[Command[Any]]) -> Plan[list[Any]]:
    """The answers to these commands. The acknowledgements go before the first of them."""
    by_stream, this.acks = this.acks, {}
    group = this.consumer.group
    acks = [
        commands.settle_received(ConsumerKeys(stream, group), group, [_act(one) for one in runs])
        for stream, runs in by_stream.items()
    ]
    answers = yield [*acks, *asked]
    for runs, answer in zip(by_stream.values(), answers[: len(acks)], strict=True):
        this.lost += [this.acked[at] for at, result in _results(runs, answer) if result.result != "ok"]
    return answers[len(acks) :]


def _take_held(context: Context, this: _Call) -> Plan[None]:
    """Receive again what calls of the same name hold. Raises the first error: the caller repeats, and gets all messages."""
    group = this.consumer.group
    asked = [commands.held_calls([(ConsumerKeys(stream, group), this.name)]) for _, stream in this.streams]
    answers = (yield from _answers(this, asked)) if this.acks else (yield asked)
    holding = [place for place, found in zip(this.streams, answers, strict=True) if found == [True]]
    if holding:
        yield from _take(context, this, [_Share(place, 0) for place in holding])
    if this.failed:
        raise this.failed[0]


def _take(context: Context, this: _Call, wanted: Sequence[_Share]) -> Plan[None]:
    """Receive shares of streams."""
    consumer = this.consumer
    asked = [this.ask(share) for share in wanted]
    answers = (yield from _answers(this, asked)) if this.acks else (yield asked)
    if new := [at for at, answer in enumerate(answers) if isinstance(answer, UnknownGroup)]:
        yield from make_group(context, consumer.new_group, this.streams)
        again = yield [this.ask(wanted[at]) for at in new]
        for at, answer in zip(new, again, strict=True):
            answers[at] = answer
    for share, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, ReceivedEntries):
            _add(context, this, share.place, answer)
        elif isinstance(answer, FilterOfGroup):
            raise OtherFilter(consumer.group, answer.tags)
        elif isinstance(answer, UnknownGroup):
            this.failed.append(StoreUnavailable(f"the group {consumer.group} is deleted meanwhile; receive again"))
        else:
            this.failed.append(no_stream(consumer.topic, share.place[1], answer) or answer)


def _add(context: Context, this: _Call, at: tuple[str, str], answer: ReceivedEntries) -> None:
    """Add what was received from a stream."""
    this.now = answer.now
    context.groups.saw(answer.now)
    if answer.next is not None:
        this.soonest[at] = answer.next
    new = _new_messages(this.consumer, at[0], answer) if answer.names else None
    if new is not None:
        this.messages += new
        return
    for entry in answer.entries:
        if why := _why_foreign(entry.fields):
            this.foreign.append((at[0], entry, why))
        elif entry.exhausted:
            this.spent.append(_Spent(at[0], entry, answer.making, len(this.messages)))
        else:
            this.messages.append(_received(this.consumer, at[0], entry, answer.making))


def _skip(
    consumer: Consumer, streams: Sequence[tuple[str, str]], entries: Sequence[tuple[str, StreamEntry, str]]
) -> Plan[None]:
    """Acknowledge entries that delayq did not write, and count them. After an error they are received, and skipped, again."""
    by_place: dict[str, list[Act]] = {}
    for place, entry, why in entries:
        by_place.setdefault(place, []).append(Act("skip", entry.lease, reason=why))
    yield [
        commands.settle_received(ConsumerKeys(stream, consumer.group), consumer.group, by_place[place])
        for place, stream in streams
        if place in by_place
    ]


class _Share(msgspec.Struct, frozen=True):
    """How much of a call comes from one stream: so many messages and bytes, and whether one message may be larger."""

    place: tuple[str, str]
    most: int
    of_bytes: tuple[int, bool] = (MOST_RECEIVED_BYTES, True)


def _shares(places: Sequence[tuple[str, str]], most: int, most_bytes: int, streams: int) -> list[_Share]:
    """The shares of the next streams, together at most so many messages and bytes.

    If there are several streams, the first one of the call gets half of the bytes, or one message, however large it is. Each
    stream is the first one equally often, so a large message does not wait permanently behind those of other streams.
    """
    each, more = divmod(most, len(places))
    asked = places if each else places[:more]
    is_first = len(places) == streams
    own = most_bytes // (1 if len(asked) == 1 else 2 if is_first else len(asked))
    others = (most_bytes - own) // max(1, len(asked) - 1)
    return [
        _Share(place, each + (at < more), (max(0, others if at else own), is_first and not at))
        for at, place in enumerate(asked)
    ]


def _why_foreign(fields: Mapping[str, bytes]) -> str | None:
    """Return the reason why an entry is not one of delayq's, or None if it is."""
    if missing := [name for name in _NEEDED if name not in fields]:
        return f"it has no {missing[0]}"
    if any("\ufffd" in name for name in fields):
        return "the name of a field is not UTF-8"
    for name in ("id", "topic"):
        try:
            if not fields[name].decode():
                return f"its {name} is empty"
        except UnicodeDecodeError:
            return f"its {name} is not UTF-8"
    for name, most in (("due", LATEST), ("attempt", 2**31)):
        value = fields.get(name, b"1")
        if not value.isdigit() or len(value) > 20 or int(value) > most:
            return f"its {name} is no number of delayq"
    for name, value in fields.items():
        if name[:2] == "p:" and len(name.encode()) > _LONGEST_PROPERTY:
            return "the name of a property is too long"
        longest = _longest(name)
        if longest and len(value) > longest // 3 and len(_text(fields, name).encode()) > longest:
            return f"its {name} is too long"
    return None


def _longest(name: str) -> int | None:
    """The most bytes of a field, as text. None if any length is possible."""
    return _LONGEST_PROPERTY if name[:2] == "p:" else _LONGEST.get(name)


def _new_messages(consumer: Consumer, place: str, answer: ReceivedEntries) -> list[Leased] | None:
    """Messages that are new to the group and have the same fields. Each field is decoded for all messages at once.

    None if delayq may not have written one of them: each has to be looked at.
    """
    rows, width = answer.rows, len(answer.names) + 1
    count = len(rows) // width
    column = {name: rows[at::width] for at, name in enumerate(answer.names, 1)}
    own = [name for name in answer.names if name.startswith("p:")]
    if any(name not in column for name in _NEEDED) or "\ufffd" in "".join(answer.names):
        return None
    if b"" in column["id"] or b"" in column["topic"] or (own and max(map(len, own)) > _LONGEST_PROPERTY // 3):
        return None

    def texts(name: str, errors: str = "replace") -> list[str]:
        values = column.get(name)
        return [""] * count if values is None else _decoded(values, errors, _longest(name))

    try:
        ids, topics, tags, keys = texts("id", "strict"), texts("topic", "strict"), texts("tags"), texts("keys")
        ordering_keys, properties = texts("orderingKey"), [texts(name) for name in own]
        times = column.get("due") or [entry.partition(b"-")[0] for entry in rows[::width]]
        dues, attempts = _numbers(times, LATEST), _numbers(column.get("attempt") or [b"1"] * count, 2**31)
    except ValueError:
        return None
    group, tail = consumer.group, f"{answer.call}.{_mark(answer.call, answer.making)}"
    messages = [
        Leased(
            id=id,
            topic=topic,
            group=group,
            lease=f"{place}.{entry}.{tail}",
            tags=tag,
            keys=(),
            ordering_key=ordering_key,
            body=body,
            due=due,
            attempt=attempt,
        )
        for entry, id, topic, tag, ordering_key, body, due, attempt in zip(
            _decoded(rows[::width]),
            ids,
            topics,
            tags,
            ordering_keys,
            column.get("body") or [b""] * count,
            dues,
            attempts,
            strict=True,
        )
    ]
    if any(keys) or own:
        each = zip(*properties, strict=True) if own else [()] * count
        messages = [
            replace(
                one,
                keys=tuple(words.split()),
                properties={name[2:]: value for name, value in zip(own, values, strict=True)},
            )
            for one, words, values in zip(messages, keys, each, strict=True)
        ]
    return messages


def _decoded(values: list[bytes], errors: str = "replace", longest: int | None = None) -> list[str]:
    """The texts of values, which are decoded together: that is faster than one by one.

    Raises ValueError if one may have more than the longest bytes as text. A byte that is not UTF-8 becomes three.
    """
    first, most = values[0], sys.maxsize if longest is None else longest // 3
    if values.count(first) == len(values):
        if len(first) > most:
            raise ValueError
        return [first.decode(errors=errors)] * len(values)
    joined = b"\n".join(values)
    if len(joined) > most and max(map(len, values)) > most:
        raise ValueError
    texts = joined.decode(errors=errors).split("\n")
    return texts if len(texts) == len(values) else [one.decode(errors=errors) for one in values]


def _numbers(values: list[bytes], most: int) -> list[int]:
    """The numbers of values. Raises ValueError for one that is none, or above `most`."""
    if values.count(values[0]) == len(values):
        digits, numbers = values[0], [int(values[0])] * len(values)
    else:
        digits, numbers = b"".join(values), list(map(int, values))
    if not digits.isdigit() or max(numbers) > most:
        raise ValueError
    return numbers


def _received(consumer: Consumer, place: str, entry: StreamEntry, making: str = "") -> Leased:
    fields = entry.fields
    return Leased(
        id=_text(fields, "id"),
        topic=_text(fields, "topic"),
        group=consumer.group,
        lease=f"{place}.{entry.lease.entries}.{entry.lease.call}.{_mark(entry.lease.call, making)}",
        tags=_text(fields, "tags"),
        keys=tuple(_text(fields, "keys").split()),
        ordering_key=_text(fields, "orderingKey"),
        properties={name[2:]: _text(fields, name) for name in fields if name.startswith("p:")},
        body=fields.get("body", b""),
        due=min(int(fields.get("due") or entry.lease.entries.partition("-")[0]), LATEST),
        attempt=int(fields.get("attempt", 1)),
        deliveries=entry.deliveries,
        hand_backs=entry.hand_backs,
    )


def _mark(call: str, making: str) -> str:
    """The mark of a call in its leases: the making of its group, and a check that a lease that never was does not have."""
    return f"{making}{crc32(f'{call}.{making}'.encode()):08x}"


def with_id(lease: str, id: str) -> str:
    """The lease, which has no such mark, with the mark of its message: it cannot be taken for that of another message."""
    entry = lease.split(".", 2)[1]
    return f"{lease}{crc32(f'{entry} {id}'.encode()):08x}"


def hand_back_rules(policy: Policy) -> tuple[int, Sequence[int]]:
    """The most hand-backs of a message of the policy's topics, and the delay (ms) of each; the last delay repeats."""
    most = MOST_HAND_BACKS if policy.max_hand_backs is None else policy.max_hand_backs
    return most, policy.backoff or HAND_BACK_DELAYS


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return fields.get(name, b"").decode(errors="replace")


def _bury(
    context: Context,
    consumer: Consumer,
    streams: Sequence[tuple[str, str]],
    entries: Sequence[_Spent],
    most_leases: int,
) -> Plan[list[_Spent]]:
    """Make messages whose leases ended too often dead letters, then acknowledge them.

    Return those for which another message has the id of the dead letter. Nobody else would tell of them, so they are received
    again.
    """
    by_place = dict(streams)
    messages = [_received(consumer, one.place, one.entry) for one in entries]
    reason = f"the lease of a consumer of group {consumer.group} ended {most_leases} times"
    dead = yield from give_up(context, [letter_of(one, reason, consumer.reserved) for one in messages])
    done = [one for one, result in zip(entries, dead, strict=True) if result in ("dead", "waiting")]
    yield [
        commands.settle_received(
            ConsumerKeys(by_place[one.place], consumer.group), consumer.group, [Act("ack", one.entry.lease)]
        )
        for one in done
    ]
    return [one for one, result in zip(entries, dead, strict=True) if result == "taken"]


class LeaseChange(msgspec.Struct, frozen=True):
    """A change of a lease that a consumer wants.

    `ms` is the new lease, or the pause before the message is received again. None means the next one of the policy's `backoff`,
    or of HAND_BACK_DELAYS.
    """

    kind: Literal["ack", "extend", "back", "release"]
    lease: str
    ms: int | None = None
    reason: str = ""


def leases_to_ack(consumer: Consumer, messages: Sequence[Leased]) -> list[str]:
    """The leases of messages that one call acknowledges before it receives more. Raises InvalidMessage for another group's."""
    if any(one.topic != consumer.topic or one.group != consumer.group for one in messages):
        raise InvalidMessage("ack", "has a message of another topic or group; acknowledge it by its own call")
    return [one.lease for one in messages]


def extension(lease: str, ms: int) -> LeaseChange:
    """The change that lets a lease end in so many ms; 0 releases the message unhandled. Raises InvalidMessage."""
    if ms and not SHORTEST_LEASE <= ms <= LONGEST_LEASE:
        raise InvalidMessage("lease", "is from 1 s to 12 h, or 0 to release the message")
    return LeaseChange("extend", lease, ms) if ms else LeaseChange("release", lease)


def settle(
    context: Context, consumer: Consumer, changes: Sequence[LeaseChange]
) -> Plan[list[Settlement | DelayqError]]:
    """Acknowledge, extend or hand back messages; a result for each, in order. A repeated call gets the same results."""
    streams = yield from _streams(context, consumer.topic)
    results = list[Any]([Settlement("lost")] * len(changes))
    rules = [(change.kind, change.ms, change.reason) for change in changes]
    by_stream, unknown = _by_stream(streams, [change.lease for change in changes], rules)
    backs = [change for change in changes if change.kind == "back"]
    if not all(0 <= (change.ms or 0) <= context.limits.horizon for change in backs):
        raise InvalidMessage("delayTime", f"must be ms from 0 to {context.limits.horizon}, as of any message")
    if backs:
        yield from learn_policies(context.policies)
    most_backs, pauses = hand_back_rules(context.policies.policy(consumer.topic))
    answers = yield [
        commands.settle_received(
            ConsumerKeys(stream, consumer.group),
            consumer.group,
            [_act(one) for one in runs],
            most_hand_backs=most_backs,
            pauses=pauses,
        )
        for stream, runs in by_stream.items()
    ]
    exhausted: list[tuple[int, str, Lease, str]] = []
    for (stream, runs), answer in zip(by_stream.items(), answers, strict=True):
        if isinstance(answer, StoreError):
            for at in (at for one in runs for at in one.numbers):
                results[at] = answer
            continue
        for at, result in _results(runs, answer):
            if result.result == "unknown":
                unknown.append(at)
            elif result.result == "exhausted":
                _, entry, call, *_ = changes[at].lease.split(".")
                exhausted.append((at, stream, Lease(entry, call), result.reasons))
            else:
                done = _DONE[changes[at].kind]
                results[at] = Settlement(done if result.result == "ok" else "lost", result.until)
    if exhausted:
        yield from _bury_handed_back(context, consumer, exhausted, results)
    if unknown:
        field = field_of(consumer.topic, consumer.group, streams)
        (queues,) = yield [commands.group_queues(field)]
        here = queues if isinstance(queues, StoreError) else Settlement("notFound" if queues is None else "lost")
        for at in unknown:
            results[at] = here
    return results


def without_id(lease: str) -> str:
    """The lease without the mark of its message, if it has one."""
    is_marked = lease.count(".") == 3 and len(lease) - lease.rfind(".") - 1 == _MARKS
    return lease[: _MARK - _MARKS] if is_marked else lease


def wrong_id(lease: str, id: str) -> InvalidMessage | None:
    """The refusal of a lease that is not that of this message; None if it is, or if it has no mark of a message."""
    bare = without_id(lease)
    if bare == lease or lease == with_id(bare, id) or not _TOKEN.fullmatch(lease):
        return None
    text = f"{id!r} is not the message of this lease: give the id and the lease that were received together"
    return InvalidMessage("id", text)


#: A kind, ms and a reason, see LeaseChange.
_Rule = tuple[Literal["ack", "extend", "back", "release"], int | None, str]


class _Run(msgspec.Struct):
    """The same change of entries of one call that follow each other, and the numbers of their tokens.

    `tail` is the rest of the tokens behind the entry: the name of the call and its mark, '' in a lease of a former version.
    """

    tail: str
    rule: _Rule
    call: str
    mark: str
    entries: list[str]
    numbers: list[int]

    @property
    def text(self) -> str:
        """The entries, a space between two."""
        return " ".join(self.entries)

    @property
    def making(self) -> str:
        """The making of the group; '' for a lease of a former version."""
        return self.mark[:_MAKING]


def _by_stream(
    streams: Sequence[tuple[str, str]], tokens: Sequence[str], rules: Sequence[_Rule]
) -> tuple[dict[str, list[_Run]], list[int]]:
    """The changes by stream, and the numbers of tokens of other places, and of those that no call has received.

    Raises InvalidMessage for a text that is no token.
    """
    by_place: dict[str, list[_Run]] = {}
    last: dict[str, _Run] = {}
    for at, (token, rule) in enumerate(zip(tokens, rules, strict=True)):
        try:
            place, entry, tail = token.split(".", 2)
        except ValueError:
            raise _no_lease(token) from None
        run = last.get(place)
        if run is None or run.tail != tail or run.rule != rule:
            call, _, mark = tail.partition(".")
            last[place] = run = _Run(tail, rule, call, mark, [], [])
            by_place.setdefault(place, []).append(run)
        run.entries.append(entry)
        run.numbers.append(at)
    places, others, found = dict(streams), list[int](), dict[str, list[_Run]]()
    for place, runs in by_place.items():
        for run in runs:
            text = run.text
            is_clean = len(run.entries) == 1 or (_ENTRIES.fullmatch(text) and text.count(" ") == len(run.entries) - 1)
            if not is_clean or not _TOKEN.fullmatch(tokens[run.numbers[0]]):
                raise _no_lease(next(tokens[at] for at in run.numbers if not _TOKEN.fullmatch(tokens[at])))
        stream = places.get(place) or _older_stream(streams, place)
        for run in runs:
            if stream and (not run.mark or run.mark[:_MARK] == _mark(run.call, run.making)):
                found.setdefault(stream, []).append(run)
            else:
                others += run.numbers
    return found, others


def _no_lease(token: str) -> InvalidMessage:
    return InvalidMessage("lease", f"{token!r} is no lease: give the one that was received with the message")


def _older_stream(streams: Sequence[tuple[str, str]], number: str) -> str | None:
    """The stream of a queue of a former layout, whose number is lower; None if there is no such queue."""
    most = max((int(place) for place, _ in streams if place), default=-1)
    return queue_keys(int(number)).stream(own_name(streams)) if number and int(number) <= most else None


def _act(run: _Run) -> Act:
    kind, ms, reason = run.rule
    lease = Lease(run.text, run.call)
    reason = reason_line(reason) if kind == "back" else ""
    return Act(kind, lease, LEASE if ms is None and kind == "extend" else ms, reason, run.making)


def _results(runs: Sequence[_Run], answer: list[Settled] | StoreError) -> Iterable[tuple[int, Settled]]:
    """The results by number of the token; after an error all are lost."""
    numbers = [at for one in runs for at in one.numbers]
    return zip(numbers, [Settled("lost")] * len(numbers) if isinstance(answer, StoreError) else answer, strict=True)


def reason_line(reason: str) -> str:
    """The reason of a hand-back as one line of at most MOST_REASON characters, without control characters.

    The text of an exception may have any, and colors of a terminal besides.
    """
    text = reason[:MOST_REASON].encode(errors="replace").decode()
    printable = text if text.isprintable() else "".join([one if one.isprintable() else " " for one in text])
    return " ".join(printable.split()) or "no reason given"


def _bury_handed_back(
    context: Context,
    consumer: Consumer,
    exhausted: Sequence[tuple[int, str, Lease, str]],
    results: list[Any],
) -> Plan[None]:
    """Make messages that were handed back too often dead letters, with all reasons, then acknowledge them."""
    entries = yield [commands.stream_entry(stream, lease.entries) for _, stream, lease, _ in exhausted]
    for (at, *_), fields in zip(exhausted, entries, strict=True):
        results[at] = fields if isinstance(fields, StoreError) else Settlement("lost")  # it was trimmed, or follows
    found = [
        (at, stream, lease, _received(consumer, "", StreamEntry(lease, 0, 0, True, "", fields)), reasons)
        for (at, stream, lease, reasons), fields in zip(exhausted, entries, strict=True)
        if isinstance(fields, dict) and not _why_foreign(fields)
    ]
    letters = [letter_of(message, reasons, consumer.reserved) for *_, message, reasons in found]
    dead = yield from give_up(context, letters)
    done: list[tuple[int, Command[Any]]] = []
    for (at, stream, lease, *_), letter, result in zip(found, letters, dead, strict=True):
        if result in ("dead", "waiting"):
            act = Act("ack", lease)
            done.append((at, commands.settle_received(ConsumerKeys(stream, consumer.group), consumer.group, [act])))
        else:  # the lease stays, and so does the message
            results[at] = result if isinstance(result, DelayqError) else Conflict(letter.message.id or "")
    answers = yield [command for _, command in done]
    for (at, _), answer in zip(done, answers, strict=True):
        results[at] = answer if isinstance(answer, StoreError) else Settlement("dead")
