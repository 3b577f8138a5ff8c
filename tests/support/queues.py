"""One queue as tests speak of it: rows go in, commands act, `state` shows what is in Redis.

Times are small numbers, handed to the scripts as their `now`.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from delayq.base.errors import StoreError
from delayq.domain.codec import Record, encode
from delayq.domain.message import Limits, Message
from delayq.store import commands
from delayq.store.commands import (
    Answers,
    Command,
    Found,
    Head,
    Known,
    KnownTopics,
    Listed,
    Most,
    Outdated,
    Parked,
    Pulled,
    QueueStats,
    Released,
    Retention,
)
from delayq.store.connect.async_store import AsyncStore
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes
from delayq.store.keys import KEYS, QueueKeys
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

T = TypeVar("T")
EPOCH = "0000000000.00000000000000000007"
OLD_EPOCH = "0000000000.00000000000000000006"
NEW_EPOCH = "0000000000.00000000000000000008"


class Runner(Protocol):
    """What both stores can do, seen from a test that is no coroutine."""

    def run(self, command: Command[T]) -> T: ...
    def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]: ...
    def close(self) -> None: ...


class AsyncRunner:
    """An AsyncStore on an event loop of its own."""

    def __init__(self, url: str, *, timeout: float = PATIENCE) -> None:
        self._runner = asyncio.Runner()
        try:
            self.store = self._runner.run(self._make(url, timeout))
        except BaseException:
            self._runner.close()
            raise

    @staticmethod
    async def _make(url: str, timeout: float) -> AsyncStore:
        return AsyncStore(url, timeout=timeout)

    def run(self, command: Command[T]) -> T:
        return self._runner.run(self.store.run(command))

    def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        return self._runner.run(self.store.run_many(commands))

    def close(self) -> None:
        with self._runner:
            self._runner.run(self.store.close())


def give_up_after(caller: Any, seconds: float) -> None:
    """From now on a Store or AsyncRunner waits so long for each reply, also over the connections that it has.

    So only what is to be given up has a short time-out: on a busy machine what must succeed may take longer.
    """
    store: Any = caller.store if isinstance(caller, AsyncRunner) else caller
    store._state._timeout = int(seconds * 1000)
    store._free._timeout = seconds
    store._server._factory.connection_kwargs["socket_timeout"] = seconds
    if isinstance(caller, AsyncRunner):
        store._server._timeout = seconds
    for one in store._state.idle:
        if isinstance(caller, AsyncRunner):
            one._timeout = seconds
        else:
            one._timeout = seconds * 1000
            one._socket.settimeout(seconds)


class GuardedRunner:
    """A Store as a user of Redis who may touch the keys of the command that runs, and none beside them."""

    def __init__(self, server: ServerUnderTest) -> None:
        self._admin = server.admin
        self._allow("allkeys")
        self._store = Store(server.url.replace("redis://", "redis://guarded:guarded@"), timeout=PATIENCE)

    def run(self, command: Command[T]) -> T:
        # No space may stand in a pattern; the bracketed ones would mean more than themselves.
        patterns = ["%RW~" + re.sub(r"([][*?])", r"[\1]", key).replace(" ", "?") for key in command.keys]
        if command.script in (
            "pull",
            "release",
            "held_topics",
        ):  # it makes the names of the sets of topics, which its caller does not know
            patterns.append("%RW~" + command.keys[0].removesuffix("state") + "parked:h:*")
        self._allow(*patterns if command.script else ["allkeys"])
        return self._store.run(command)

    def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        self._allow("allkeys")
        return self._store.run_many(commands)

    def close(self) -> None:
        self._store.close()
        self._admin.execute_command("ACL", "DELUSER", "guarded")

    def _allow(self, *keys: str) -> None:
        rights = ("on", ">guarded", "+@all", "allchannels", "resetkeys", *keys)
        self._admin.execute_command("ACL", "SETUSER", "guarded", *rights)


# -- rows: what schedule is given ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A message for the schedule script."""

    id: str
    spec: str
    content: bytes


def schedule_command(
    keys: QueueKeys, *rows: Row, now: int, retention: Retention | None = None
) -> commands.Command[commands.Answers]:
    """The command that schedules the rows."""
    return commands.schedule(
        keys,
        "".join(one.spec[:1] for one in rows),
        [one.id for one in rows],
        [one.spec[1:].encode().rjust(13, b"0") + b"0" + one.content for one in rows],
        policies="9",  # whatever was set last
        now=now,
        retention=retention or Retention(),
    )


def row(
    id: str,
    *,
    at: int | None = None,
    after: int | None = None,
    spec: str | None = None,
    given: bool = False,
    topic: str = "orders",
    body: Any = "body",
    keys: tuple[str, ...] = (),
    properties: dict[str, str] | None = None,
    tags: str = "",
    ordering_key: str = "",
    max_attempts: int | None = None,
    expire_after: int | None = None,
    reserved: tuple[str, ...] = (),
) -> Row:
    """A message that is due `at` a time or `after` a delay; `given`: its id is the caller's own."""
    message = Message(
        topic=topic,
        body=body,
        expect_date=at,
        delay_time=after,
        keys=keys,
        properties=properties or {},
        tags=tags,
        ordering_key=ordering_key,
        max_attempts=max_attempts,
        expire_after=expire_after,
        reserved=reserved,
    )
    if spec is None:
        spec = f"r{after}" if at is None else f"a{at}"
    return Row(id, spec.upper() if given else spec, encode(message, Limits()))


# -- what is in Redis ------------------------------------------------------------------------------------------------


@dataclass
class State:
    """Everything of a queue that its messages leave in Redis.

    Ids stand for tickets. A ticket whose record is gone, or of another generation, is an `orphan`; a record without
    any ticket a `stray`. `keys` are those that are in the index but for those of `ended`: of each id that has ended, the
    business keys that lead to it.
    """

    queue: dict[str, int] = field(default_factory=dict)
    parked: dict[str, dict[str, int]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    final: dict[str, tuple[str, int]] = field(default_factory=dict)
    ended: dict[str, list[str]] = field(default_factory=dict, compare=False)  # what is remembered of `final`, no more
    orphans: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)


ENDINGS = ("forwarded", "cancelled", "cancelled in flight", "discarded")


def ending(score: float) -> tuple[str, int]:
    """How and when the id with this score in `final` ended."""
    fraction, exponent = math.frexp(score)
    bits = int(fraction * 2**53) - 2**52
    return ENDINGS[bits % 4], (exponent + 699) * 2**31 + bits // 2**21


@dataclass(frozen=True)
class Taken:
    """A pulled message, as what settles it sees it."""

    ticket: bytes
    score: int
    attempts: int
    record: Record

    @property
    def id(self) -> str:
        return self.ticket[:-8].decode()

    @property
    def digest(self) -> int | None:
        return self.record.digest if self.record.remembered else None

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def index_keys(self) -> tuple[str, ...]:
        return self.record.index_keys


def taken(pulled: Pulled | Released | Outdated | None) -> list[Taken]:
    """The messages of a pull or a release."""
    assert isinstance(pulled, Pulled | Released), pulled
    return [
        Taken(ticket, score, attempts, Record(raw))
        for ticket, score, attempts, raw in zip(
            pulled.tickets, pulled.scores, pulled.attempts, pulled.records, strict=True
        )
    ]


def ids(messages: Pulled | Released | Iterable[Taken] | None) -> list[str]:
    """The ids of pulled messages."""
    if messages is None or isinstance(messages, Pulled | Released):
        messages = taken(messages)
    return [one.id for one in messages]


class Queue:
    """One queue: commands by the store under test, looked at by a plain client."""

    def __init__(self, store: Runner, server: ServerUnderTest, number: int = 3) -> None:
        self.store = store
        self.server = server
        self.admin: Any = server.admin
        self.keys = KEYS.queue(number)
        self.retention = Retention()
        self.epoch = EPOCH
        self.now = 10_000

    def run(self, command: Command[T]) -> T:
        return self.store.run(command)

    def _at(self, now: int | None) -> int:
        if now is not None:
            self.now = now
        return self.now

    # -- commands ------------------------------------------------------------------------------------------------------

    def schedule(self, *rows: Row, now: int | None = None) -> Answers:
        return self.run(schedule_command(self.keys, *rows, now=self._at(now), retention=self.retention))

    def given(self, *rows: Row, now: int | None = None) -> Answers:
        """Scheduled messages to begin with."""
        answers = self.schedule(*rows, now=now)
        assert answers.others == {}
        return answers

    def cancel(self, *ids: str, by: str = "", now: int | None = None) -> list[str]:
        return self.run(commands.cancel(self.keys, ids, by=by, now=self._at(now), retention=self.retention))

    def reschedule(self, id: str, spec: str, now: int | None = None, *, call: str = "") -> tuple[str, int | None]:
        return self.run(
            commands.reschedule(self.keys, id, spec, call=call, now=self._at(now), retention=self.retention)
        )

    def get(self, *ids: str, now: int | None = None) -> list[Found | None]:
        return self.run(commands.get(self.keys, ids, now=self._at(now), retention=self.retention))

    def state_of(self, id: str, now: int | None = None) -> str | None:
        (found,) = self.get(id, now=now)
        return found.state if found is not None else None

    def find(self, key: str, limit: int = 100, after: str = "") -> list[str]:
        return self.run(commands.find_by_key(self.keys, key, limit, after))

    def stats(self, now: int | None = None) -> QueueStats:
        return self.run(commands.stats(self.keys, now=self._at(now)))

    def pull(
        self,
        *,
        now: int | None = None,
        epoch: str | None = None,
        offset: int = 0,
        behind: bytes = b"",
        room: int = 500,
        look: int = 500,
        most_bytes: int = 8 * 1024 * 1024,
        fresh: bool = False,
        known: Sequence[Known] = (),
        unlisted_general: bool = True,
        node_now: int | str = "",
        version: str = "",
        without_permits: Sequence[str] = (),
        in_memory: Sequence[bytes] = (),
        listed: Listed = Listed.NONE,
    ) -> Pulled:
        pulled = self.run(
            commands.pull(
                self.keys,
                epoch or self.epoch,
                offset=offset,
                behind=behind,
                room=room,
                look=look,
                most_bytes=most_bytes,
                fresh=fresh,
                known=KnownTopics.of(self.keys, known),
                unlisted_general=unlisted_general,
                node_now=node_now,
                now=self._at(now),
                retention=self.retention,
                version=version,
                without_permits=without_permits,
                in_memory=in_memory,
                listed=listed,
            )
        )
        assert isinstance(pulled, Pulled), pulled
        return pulled

    def pause(self, *topics: str, version: str = "1", now: int | None = None) -> None:
        """These topics are paused from now on, and no others."""
        self.run(commands.apply_policies(self.keys, version, topics, now=self._at(now)))

    def release(
        self,
        topics: str | Mapping[str, Most],
        most: Most = 500,
        *,
        upto: Head | None = None,
        now: int | None = None,
        epoch: str | None = None,
        version: str = "",
        node_now: int | str = "",
        known: Sequence[Known] = (),
    ) -> Released:
        if isinstance(topics, str):
            topics = {topics: most}
        streams = {one.topic: one for one in known}
        released = self.run(
            commands.release(
                self.keys,
                epoch or self.epoch,
                topics,
                known=KnownTopics.of(self.keys, [streams.get(topic, Known(topic)) for topic in topics]),
                upto=upto,
                now=self._at(now),
                node_now=node_now,
                version=version,
                retention=self.retention,
            )
        )
        assert isinstance(released, Released), released
        return released

    def take(self, now: int | None = None) -> list[Taken]:
        """Pull everything that is due."""
        return taken(self.pull(now=now))

    def take_one(self, now: int | None = None) -> Taken:
        """Pull the one message that is due."""
        (one,) = self.take(now)
        return one

    def ack(self, *done: Taken, epoch: str | None = None, now: int | None = None) -> tuple[bool, int]:
        return self.run(commands.ack(self.keys, epoch or self.epoch, done, now=self._at(now), retention=self.retention))

    def retry(self, *failed: tuple[Taken, int | None], epoch: str | None = None) -> list[str] | None:
        return self.run(commands.retry(self.keys, epoch or self.epoch, failed))

    def bury(self, *failed: Taken, reason: str = "broken", epoch: str | None = None) -> list[str] | None:
        rows = [(one, one.attempts + 1, reason) for one in failed]
        return self.run(commands.bury(self.keys, epoch or self.epoch, rows, now=self.now))

    def park(self, name: str, *messages: Taken, epoch: str | None = None) -> Parked | None:
        return self.run(commands.park(self.keys, epoch or self.epoch, name, messages))

    def release_set(
        self, name: str, most: int | None = 500, epoch: str | None = None, begin: float = 0
    ) -> Released | None:
        command = commands.release_set(self.keys, epoch or self.epoch, name, most, begin=begin, now=self.now)
        released = self.run(command)
        assert not isinstance(released, Outdated), released
        return released

    def redrive(self, *ids: str, now: int | None = None, call: str = "") -> list[str]:
        return self.run(commands.redrive(self.keys, ids, call=call, now=self._at(now), retention=self.retention))

    def discard(self, *ids: str, by: str = "", now: int | None = None) -> list[bool | None]:
        return self.run(commands.discard(self.keys, ids, by=by, now=self._at(now), retention=self.retention))

    def dead_letters(self, limit: int = 100, after: tuple[int, str] | None = None) -> list[Found]:
        return self.run(commands.dead_letters(self.keys, limit, after))

    def repair(self, look: int = 500) -> tuple[int, int]:
        """Go through the entire pool: return how many tickets were restored, and how many messages were buried."""
        parked = [name.removeprefix(b"parked:").decode() for name in self.fields() if name.startswith(b"parked:")]
        cursor, back, corrupt = "0", 0, 0
        while True:
            cursor, more_back, more_corrupt = self.run(commands.repair(self.keys, parked, cursor, look, now=self.now))
            back, corrupt = back + more_back, corrupt + more_corrupt
            if cursor == "0":
                return back, corrupt

    # -- looking -------------------------------------------------------------------------------------------------------

    def fields(self) -> dict[bytes, bytes]:
        """The fields of the queue's own state: epoch, watermark, sleep_until, counters."""
        fields: dict[bytes, bytes] = self.admin.hgetall(self.keys.state)
        return fields

    def field(self, name: str) -> str | None:
        """One of these fields."""
        value = self.fields().get(name.encode())
        return value.decode() if value is not None else None

    def record(self, id: str) -> Record:
        """The record in the pool."""
        return Record(self.admin.hget(self.keys.pool, id))

    def state(self) -> State:
        """Everything of the queue that its messages leave in Redis."""
        k, state, admin = self.keys, State(), self.admin
        pool: dict[bytes, bytes] = admin.hgetall(k.pool)
        seen: set[str] = set()

        def tickets(key: str) -> dict[str, int]:
            found = {}
            for ticket, score in admin.zrange(key, 0, -1, withscores=True):
                id, generation = ticket[:-8], ticket[-7:]
                if pool.get(id, b"")[:7] == generation:
                    found[id.decode()] = int(score)
                    seen.add(id.decode())
                else:
                    state.orphans.add(id.decode())
            return found

        state.queue = tickets(k.queue)
        prefix = k.parked("")
        for key in sorted(admin.scan_iter(match=prefix + "*")):
            if found := tickets(key.decode()):
                state.parked[key.decode().removeprefix(prefix)] = found
        state.attempts = {id.decode(): int(count) for id, count in admin.hgetall(k.attempts).items()}
        state.ended = {
            id.decode(): end.partition(b"\1")[0].decode().split() for id, end in admin.hgetall(k.ended).items()
        }
        members = {tuple(member.decode().split("\0")) for member in admin.zrange(k.index, 0, -1)}
        for key, id in sorted(members - {(key, id) for id, keys in state.ended.items() for key in keys}):
            if not key.startswith("\1"):  # by what the caller gave: tests/store/test_asked_ids.py
                state.keys.setdefault(key, []).append(id)
        state.dead = {id.decode(): int(score) for id, score in admin.zrange(k.dead, 0, -1, withscores=True)}
        state.reasons = {id.decode(): text.decode() for id, text in admin.hgetall(k.reasons).items()}
        for id, score in admin.zrange(k.final, 0, -1, withscores=True):
            state.final[id.decode()] = ending(score)
        assert members >= {(key, id) for id, keys in state.ended.items() for key in keys}
        assert state.ended.keys() <= state.final.keys()
        state.strays = {id.decode() for id in pool} - seen - state.dead.keys()
        return state

    def stream(self, name: str) -> list[dict[str, str]]:
        """The entries of a stream, oldest first."""
        return [
            {field.decode(): value.decode(errors="surrogateescape") for field, value in entry.items()}
            for _, entry in self.admin.xrange(name)
        ]


class WakesHeard:
    """A subscription to a queue's wakes; `dues` returns exactly those published since the last call."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._listener = Store(queue.server.url, timeout=PATIENCE)
        self._wakes = Wakes(self._listener.connect)
        self._wakes.connect([queue.keys.wake])
        assert self._wakes.receive(PATIENCE) == ("", b"")  # subscribed

    def dues(self) -> list[int]:
        """The due times that were published."""
        self._queue.server.publish(self._queue.keys.wake, "marker")  # what was published before it arrives before it
        heard = []
        while (message := self._wakes.receive(PATIENCE)) != (self._queue.keys.wake, b"marker"):
            assert message is not None, "the subscription is silent"
            heard.append(int(message[1]))
        return heard

    def close(self) -> None:
        self._wakes.close()
        self._listener.close()
