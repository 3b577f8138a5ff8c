"""Plans that schedule messages: they choose queues and ids, fill batches, and return an outcome for each message.

They are made for bulk: this code prepares the next batch while the server runs the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from delayq.base.errors import Conflict, DelayqError, InvalidMessage, PastDue, StoreError, TooManyPending
from delayq.client.known_policies import Level, fitted, level_of
from delayq.client.plan import CHUNK, Context, Plan, every_queue, find_places
from delayq.client.scheduling.encoding import AGAIN, Encoded
from delayq.domain.codec import topic_of
from delayq.domain.message import State, topic_key
from delayq.domain.policies import Policy
from delayq.store import commands
from delayq.store.commands import MOVED, Answers, Command, Kept
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Layout, ids_ending

CHUNK_BYTES: Final = 2 * 1024 * 1024


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """An accepted message: the id to use from now on, its queue and its due time (Unix ms).

    `created` is False if the same message was scheduled before. Then `state` is 'scheduled', 'delivered' or 'dead', and `due`
    is the time that was asked for first (None if it was delivered). `window` is the time over which this call spread it.
    """

    id: str
    queue: int
    due: int | None
    state: str = State.SCHEDULED
    created: bool = True
    window: int | None = None


Outcome = Scheduled | DelayqError


#: The index of a message in the call, its due time or its delay (ms), and its window (ms).
_Place = tuple[int, int, int | None]


class Ready(NamedTuple):
    """Up to CHUNK messages of one queue, checked and encoded (behind `due_head`), with ids of the caller and dates.

    `places` are their indexes in the call, with their due times (ms) and windows (ms).
    """

    queue: int
    ids: list[str]
    bodies: list[bytes]
    places: list[_Place]


class _Left(msgspec.Struct, frozen=True, gc=False):
    """An encoded message that has to be sent again: to this queue, or to the next layout if the queue was closed."""

    queue: int
    kind: str
    id: str
    body: bytes
    place: int  # in the call
    when: int  # ms
    window: int | None  # its own


#: Outcomes by the index in the call.
_Outcomes = list[Any] | dict[int, Any]


class _Batch:
    """Messages of one queue for one script call, under one version of the policies."""

    __slots__ = ("bodies", "given", "ids", "kinds", "made", "places", "queue", "size", "suffix", "version")

    def __init__(self, queue: int, version: str, suffix: str = "") -> None:
        self.queue = queue
        self.version = version
        self.kinds: list[str] = []
        self.ids: list[str] = []
        self.bodies: list[bytes] = []
        self.places: list[_Place] = []
        self.size = 0
        self.suffix = suffix
        self.made: Iterator[str] = ids_ending(suffix) if suffix else iter(())
        #: The message before a policy changed its encoding, by the index in the batch.
        self.given: dict[int, _Left] = {}

    def add(self, one: _Left, body: bytes, when: int, window: int | None) -> None:
        """Add a message with the body to send, its due time and its window."""
        if body is not one.body:
            self.given[len(self.places)] = one
        self.kinds.append(one.kind)
        self.ids.append(one.id)
        self.bodies.append(body)
        self.places.append((one.place, when, window))
        self.size += len(body)

    @property
    def full(self) -> bool:
        return len(self.places) >= CHUNK or self.size >= CHUNK_BYTES

    def left(self, at: int) -> _Left:
        """A message of the batch as it was encoded first."""
        if (given := self.given.get(at)) is not None:
            return given
        return _Left(self.queue, self.kinds[at], self.ids[at], self.bodies[at], *self.places[at])

    def command(self, context: Context) -> Command[Answers]:
        return commands.schedule(
            context.keys.queue(self.queue),
            "".join(self.kinds),
            self.ids,
            self.bodies,
            policies=self.version,
            retention=context.retention,
        )


class _Call:
    """One call that schedules: the outcomes so far, and the policies that the next batches follow."""

    def __init__(self, context: Context, outcomes: _Outcomes) -> None:
        self.context = context
        self.outcomes = outcomes
        self.uncounted: list[_Left] = []  # messages of topics with a bound, which have to be counted first
        self.told = ""  # the latest version that a queue answered
        self.level: Level | None = None  # the durability of the messages that are sent now
        self.apart: dict[Level | None, list[_Left]] = {}  # messages of another durability, which wait
        self.follow()

    def follow(self) -> None:
        """Use the policies that are known now."""
        book = self.context.policies
        self.version = book.version  # first, so that the policies are not older than the version
        self.policies = book.known
        self.any_policy = bool(self.policies.policies)
        self._covered: dict[bytes, Policy | None] = {}  # by topic

    def policy(self, body: bytes) -> Policy | None:
        """The policy of an encoded message."""
        topic = topic_of(body)
        try:
            return self._covered[topic]
        except KeyError:
            found = self._covered[topic] = self.policies.policy(topic.decode())
            return found

    def fit(self, one: _Left, policy: Policy | None) -> tuple[bytes, int, int | None] | None:
        """The body to send, the due time and the window of a message; None if it has to wait or is refused."""
        if (level := None if policy is None else level_of(policy)) != self.level:
            self.apart.setdefault(level, []).append(one)
            return None
        if policy is None:
            return one.body, one.when, one.window
        if policy.pending is not None:
            topic = topic_of(one.body).decode()
            room = self.context.policies.room(topic, policy.pending)
            if room is None:
                self.uncounted.append(one)
                return None
            if not room:
                self.outcomes[one.place] = TooManyPending(one.id, topic, policy.pending)
                return None
        body, later, window = fitted(policy, one.id, one.body, one.window)
        return body, one.when + later, window


def schedule_encoded(context: Context, given: Iterable[Encoded | InvalidMessage]) -> Plan[list[Outcome]]:
    """Schedule messages and return the outcomes in order. An invalid message never stops the others.

    Messages are drawn from `given` while the server runs the batch before.
    """
    outcomes: list[Any] = []
    batches: list[_Batch] = []
    call = _Call(context, outcomes)
    answers = yield _commands(_by_queue(call, given, outcomes), batches, context)
    moved, again = _place(call, batches, answers)
    yield from _schedule_left(call, moved, again)
    return outcomes


def schedule_ready(
    context: Context, given: Iterable[Ready], *, refuse_past: bool = False, again: bool = False
) -> Plan[dict[int, Outcome]]:
    """Schedule encoded messages and return, by index, the outcomes of those that were not simply accepted.

    With `again`, ids that were cancelled before delivery are scheduled too.
    """
    at = "p" if refuse_past else "a"
    outcomes: dict[int, Outcome] = {}
    batches: list[_Batch] = []
    call = _Call(context, outcomes)
    answers = yield _commands(_ready_batches(call, given, AGAIN[at] if again else at.upper()), batches, context)
    moved, left = _place(call, batches, answers, others_only=True)
    yield from _schedule_left(call, moved, left)
    return outcomes


def _schedule_left(call: _Call, moved: list[_Left], again: list[_Left]) -> Plan[None]:
    """Schedule messages that a closed queue refused or that the policies held up, until every message has an outcome."""
    context, outcomes = call.context, call.outcomes
    again += call.uncounted
    while moved or again or call.apart:
        if not moved and not again:
            call.level, again = call.apart.popitem()
        context.layouts.shut.update(one.queue for one in moved)
        places = (yield from find_places(context, ((one.id, one.queue) for one in moved))) if moved else []
        for one, place in zip(moved, places, strict=True):
            if isinstance(place, StoreError):
                outcomes[one.place] = place.about(one.id)
            else:
                again.append(msgspec.structs.replace(one, queue=place))
        try:
            yield from _learn(call)
        except StoreError as error:
            for one in again:
                outcomes[one.place] = error.about(one.id)
            again, moved = [], []
            call.uncounted.clear()
            continue
        again.sort(key=_place_of)  # earlier messages of the call get room first
        batches = _regroup(call, again)
        wanted = [batch.command(context) for batch in batches]
        answers = (yield wanted if call.level is None else Kept(wanted, *call.level)) if wanted else []
        moved, again = _place(call, batches, answers)
        again += call.uncounted


def _place_of(one: _Left) -> int:
    return one.place


def _learn(call: _Call) -> Plan[None]:
    """Read later policies if a queue has them, and count the topics that have a bound; raises StoreError."""
    book, context = call.context.policies, call.context
    topics = {topic_of(one.body).decode() for one in call.uncounted}
    if call.told > book.version or topics:  # a client that refuses everything would not learn of a higher bound
        (read,) = all_good((yield [commands.policies(context.keys)]))
        book.take(read, call.told)
    call.follow()
    used = {}
    for topic in topics:
        counts = yield from every_queue(context, partial(commands.count_key, key=topic_key(topic)))
        used[topic] = sum(counts.values())
    book.counted(used)
    call.uncounted.clear()


def _commands(batches: Iterable[_Batch], drawn: list[_Batch], context: Context) -> Iterator[Command[Answers]]:
    """Yield the script call of each batch and append the batch to `drawn`."""
    for batch in batches:
        drawn.append(batch)
        yield batch.command(context)


def _by_queue(call: _Call, given: Iterable[Encoded | InvalidMessage], outcomes: list[Any]) -> Iterator[_Batch]:
    """Yield full batches of messages by queue, and append a place to `outcomes` for each message."""
    layouts, version, any_policy = call.context.layouts, call.version, call.any_policy
    known = layouts.known
    # The queue of an id that the caller gave, and of a new id.
    place, place_new = known[0].queue_of, known[0].queue_of
    if len(known) > 1:
        place_new = layouts.place_new
    shared: _Batch | None = None  # messages that fit any queue share a suffix, and so one script call
    by_queue: dict[int, _Batch] = {}
    for index, one in enumerate(given):
        if isinstance(one, InvalidMessage):
            outcomes.append(one)
            continue
        outcomes.append(None)
        id, body, when, window = one.id, one.body, one.when, one.window
        if id is None:
            if shared is None:
                suffix = Layout.random_suffix()
                shared = _Batch(place_new(suffix), version, suffix)
            batch = shared
            id = next(batch.made) if one.own is None else one.own + batch.suffix
        else:
            queue = place(id) if one.kind.isupper() else place_new(id)
            found = by_queue.get(queue)
            batch = found if found is not None else by_queue.setdefault(queue, _Batch(queue, version))
        if any_policy and (policy := call.policy(body)) is not None:
            left = _Left(batch.queue, one.kind, id, body, index, when, window)
            if (fit := call.fit(left, policy)) is None:
                continue
            batch.add(left, *fit)
        else:
            batch.kinds.append(one.kind)  # the same as `add`, without a call for each message
            batch.ids.append(id)
            batch.bodies.append(body)
            batch.places.append((index, when, window))
            batch.size += len(body)
        if len(batch.places) == CHUNK or batch.size >= CHUNK_BYTES:
            if batch is shared:
                shared = None
            else:
                del by_queue[batch.queue]
            yield batch
    if shared is not None and shared.places:
        yield shared
    yield from (batch for batch in by_queue.values() if batch.places)


def _ready_batches(call: _Call, given: Iterable[Ready], kind: str) -> Iterator[_Batch]:
    for ready in given:
        batch = _Batch(ready.queue, call.version)
        if call.any_policy:
            rows = zip(ready.ids, ready.bodies, ready.places, strict=True)
            for id, body, place in rows:
                left = _Left(ready.queue, kind, id, body, *place)
                if (fit := call.fit(left, call.policy(body))) is not None:
                    batch.add(left, *fit)
        else:
            batch.kinds = [kind] * len(ready.ids)
            batch.ids, batch.bodies, batch.places = ready.ids, ready.bodies, ready.places
        if batch.places:
            yield batch


def _regroup(call: _Call, left: list[_Left]) -> list[_Batch]:
    """Fill batches with messages that are sent again."""
    batches: list[_Batch] = []
    by_queue: dict[int, _Batch] = {}
    for one in left:
        if (fit := call.fit(one, call.policy(one.body))) is None:
            continue
        batch = by_queue.get(one.queue)
        if batch is None or batch.full:
            batch = by_queue[one.queue] = _Batch(one.queue, call.version)
            batches.append(batch)
        batch.add(one, *fit)
    return batches


def _place(
    call: _Call, batches: list[_Batch], answers: list[Any], *, others_only: bool = False
) -> tuple[list[_Left], list[_Left]]:
    """Store every outcome by index; return the messages for the next layout and the messages to send again.

    With `others_only`, messages that were simply accepted get no outcome.
    """
    outcomes = call.outcomes
    moved: list[_Left] = []
    again: list[_Left] = []
    for batch, answer in zip(batches, answers, strict=True):
        queue = batch.queue
        if isinstance(answer, StoreError):
            for id, (index, _, _) in zip(batch.ids, batch.places, strict=True):
                outcomes[index] = answer.about(id)
            continue
        if answer.policies:
            call.told = max(call.told, answer.policies)
            again += map(batch.left, range(len(batch.places)))
            continue
        if not others_only:
            now = answer.now
            for kind, id, (index, when, window) in zip(batch.kinds, batch.ids, batch.places, strict=True):
                due = (when if when > now else now) if kind in "aApPBQ" else now + when
                outcomes[index] = Scheduled(id, queue, due, window=window)
        for position, (status, due) in answer.others.items():
            (index, _, window), id = batch.places[position], batch.ids[position]
            if status == MOVED:
                moved.append(batch.left(position))
            else:
                outcomes[index] = _outcome(id, queue, status, due, window)
    return moved, again


def _outcome(id: str, queue: int, status: str, due: int | None, window: int | None) -> Outcome:
    """The outcome of a message that was not simply accepted."""
    if status == "live":
        return Scheduled(id, queue, due, created=False, window=window)
    if status == State.DEAD:
        return Scheduled(id, queue, due, State.DEAD, created=False, window=window)
    if status == State.DELIVERED:
        return Scheduled(id, queue, None, State.DELIVERED, created=False, window=window)
    if status == "invalid":
        return InvalidMessage("delayTime", "is too far in the future")
    if status == "past":
        return PastDue(id)
    if status == "conflict":
        return Conflict(id, State.DELIVERED if due is None else "")
    return Conflict(id, status)
