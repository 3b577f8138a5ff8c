"""Trims the streams of topics whose policy has a retention.

A topic that receives no more messages is trimmed, too. So each node remembers in Redis the topics that it delivers to such
streams. The owner of the first queue trims the streams of all nodes. Two nodes may safely do so at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from delayq.base.errors import StoreError, StoreFull, StoreUnavailable
from delayq.base.remembered import Remembered
from delayq.domain.patterns import is_pattern
from delayq.domain.policies import Policy
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Command, Trimmed
from delayq.store.connect.store import Store
from delayq.targets.redis_stream.target import lies_here
from workers.queue.pull_job import PullJob
from workers.queue.queue_context import CurrentPolicies

#: The runs of a round, and of each run: about how many streams it trims, and the most entries that it removes in total. Redis
#: does nothing else during a run.
RUNS: Final = 10
STREAMS: Final = 16
ENTRIES: Final = 4_000
#: A run removes at least this many entries of a stream.
FEWEST: Final = 100
#: The topics of a page, those that a round remembers in Redis, and the most that a node knows.
PAGE: Final = 100
REMEMBERED: Final = 1_000
MOST: Final = 10_000
log = structlog.get_logger()


class _Task(msgspec.Struct, frozen=True):
    """A topic with its policy, and its streams that are left to trim."""

    topic: str
    policy: Policy
    streams: Sequence[str]
    #: Its last entries, and the groups that were recorded after them; unread yet if there are no last entries.
    last: Mapping[str, str] = {}
    groups: frozenset[str] = frozenset()


class StreamTrimmer:
    """Belongs to the node's thread. Any thread may call `note`.

    Without a policy that has a retention it sends no request.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[int],
        policies: CurrentPolicies,
        routes: Routes,
        redis_url: str,
        jobs: Callable[[], Mapping[int, PullJob]],
        redis_now: Callable[[], int],
    ) -> None:
        self._queues = queues
        self._store = store
        self._policies = policies
        self._routes = routes
        self._own = {route.name for route in routes.table if lies_here(route, redis_url)}
        self._jobs = jobs
        self._redis_now = redis_now
        self._delivered: Remembered[str, None] = Remembered(MOST)  # topics with streams in this Redis
        self._new: deque[str] = deque(maxlen=MOST)  # delivered topics that Redis may not know
        self._version = ""  # of the policies of this pass
        self._tasks: deque[_Task] = deque()
        self._cursor: str | None = None  # of the next page of topics; None if all pages were read
        self._listed: set[str] = set()  # topics of this pass that come before the first page
        self._failed = False  # this pass has logged an error

    def note(self, topics: Iterable[str]) -> None:
        """Note topics that messages are delivered to."""
        for topic in topics:
            if topic not in self._delivered:
                route = self._routes.find(topic)
                if route is not None and route.name in self._own:
                    self._delivered.keep(topic, None)
                    self._new.append(topic)

    def has_news(self) -> bool:
        """Whether the policies have changed since the last pass began."""
        return self._policies.current.version != self._version

    def begin(self) -> None:
        """Begin a pass; raises StoreError. All topics in use are noted again, because Redis may have lost some."""
        policies = self._policies.current
        self._version, self._failed = policies.version, False
        self._stop()
        if not policies.trims:
            return
        for job in list(self._jobs().values()):
            self.note(job.topics.names)
        delivered = list(self._delivered)
        self._new.extend(delivered)
        if self._trims_here:
            exact = [one.match for one in policies.in_order if one.trims and not is_pattern(one.match)]
            groups = [one.topic for one in self._store.run(commands.consumer_groups(self._store.keys))]
            self._listed = {*exact, *delivered, *groups}
            self._add(self._listed)
            self._cursor = "0"

    def go_on(self) -> None:
        """Remember new topics, and trim the next streams; raises StoreError. After an error the next pass begins again."""
        if self._new:
            self._remember()
        if not self._tasks and self._cursor is None:
            return
        if not self._trims_here:
            self._stop()
            return
        try:
            for _ in range(RUNS):
                if self._tasks:
                    self._trim()
                elif self._cursor is not None:
                    self._read_page(self._cursor)
        except StoreError:
            self._stop()
            raise

    @property
    def _trims_here(self) -> bool:
        """Whether this node trims the streams of all nodes."""
        return bool(self._queues) and min(self._queues) in self._jobs()

    def _stop(self) -> None:
        self._tasks.clear()
        self._cursor = None
        self._listed = set()

    def _remember(self) -> None:
        """Remember new topics. A full Redis refuses that, and the next pass tries again."""
        policies = self._policies.current
        topics = [self._new.popleft() for _ in range(min(len(self._new), REMEMBERED))]
        trimmed = [one for one in topics if (policy := policies.policy(one)) is not None and policy.trims]
        if trimmed:
            with suppress(StoreFull):
                self._store.run(commands.remember_trimmed(self._store.keys, dict.fromkeys(trimmed, self._redis_now())))

    def _read_page(self, cursor: str) -> None:
        following, topics = self._store.run(commands.trimmed_topics(self._store.keys, cursor, PAGE))
        self._cursor = following if following != "0" else None
        self._add(topic for topic in topics if topic not in self._listed)

    def _add(self, topics: Iterable[str]) -> None:
        found: dict[Sequence[str], _Task] = {}  # by streams, which several topics may share
        for topic in topics:
            if (one := self._retention_of(topic)) is not None:
                route, policy = one
                stream = route.stream_of(topic)
                streams: tuple[str, ...]
                streams = (stream,)
                if route.per_queue:  # queues of earlier layouts, too: their numbers are lower
                    streams = tuple(
                        self._store.keys.queue(queue).stream(stream) for queue in range(max(self._queues) + 1)
                    )
                found.setdefault(streams, _Task(topic, policy, streams))
        self._tasks.extend(found.values())

    def _retention_of(self, topic: str) -> tuple[Route, Policy] | None:
        """The route of a topic and the policy by which its streams are trimmed; None if they are not."""
        policies, route = self._policies.current, self._routes.find(topic)
        policy = policies.policy(topic)
        if policy is None or not policy.trims or route is None or route.name not in self._own:
            return None
        if "{topic}" not in route.streams:  # a trim does not look at the topics of entries
            sharing = [one for one in self._routes.table if one.streams == route.streams and one.name in self._own]
            if any(policies.policy_of_all(one.match) is not policy for one in sharing):
                return None
        return route, policy

    def _trim(self) -> None:
        """Trim the streams of the next topics by one step each."""
        tasks = [self._tasks.popleft()]
        while self._tasks and sum(len(one.streams) for one in tasks) < STREAMS:
            tasks.append(self._tasks.popleft())
        tasks = self._looked_at(tasks)
        each = max(FEWEST, ENTRIES // sum(len(one.streams) for one in tasks))
        asked: list[Command[Trimmed]] = [self._step(one, stream, each) for one in tasks for stream in one.streams]
        answers: list[Trimmed | StoreError] = self._store.run_many(asked)
        steps = iter(answers)
        gone = []
        for one in tasks:
            trimmed = [(stream, self._checked(stream, next(steps))) for stream in one.streams]
            if more := [stream for stream, step in trimmed if step is not None and step.more]:
                self._tasks.append(replace(one, streams=more))
            elif all(step is not None and not step.exists for _, step in trimmed):
                gone.append(one.topic)
        if gone:
            self._store.run(commands.forget_trimmed(self._store.keys, gone))

    def _looked_at(self, tasks: Sequence[_Task]) -> list[_Task]:
        """The tasks with the last entries of their streams, and their groups.

        A group that is recorded later is no reason to keep entries from before. So the groups are read after the last entries.
        """
        new = [one for one in tasks if not one.last and not one.policy.retention_force]
        if not new:
            return list(tasks)
        streams = [stream for one in new for stream in one.streams]
        looked = self._store.run_many([commands.trim(stream, None, None, 0) for stream in streams])
        last = {
            stream: "0-0" if isinstance(one, StoreError) else one.last
            for stream, one in zip(streams, looked, strict=True)
        }
        records = self._store.run(commands.consumer_groups(self._store.keys))
        found = []
        for one in tasks:
            if one in new:
                own = self._place_of(one.topic)
                groups = frozenset(record.group for record in records if self._place_of(record.topic) == own)
                one = replace(one, last={stream: last[stream] for stream in one.streams}, groups=groups)
            found.append(one)
        return found

    def _place_of(self, topic: str) -> tuple[str, bool] | None:
        """The stream of a topic, and whether each queue has its own."""
        route = self._routes.find(topic)
        return None if route is None else (route.stream_of(topic), route.per_queue)

    @staticmethod
    def _step(task: _Task, stream: str, most: int) -> Command[Trimmed]:
        age, length, force = task.policy.retention_age, task.policy.retention_length, task.policy.retention_force
        upto = task.last.get(stream, "")
        return commands.trim(stream, age, length, most, force=force, upto=upto, groups=sorted(task.groups))

    def _checked(self, stream: str, answer: Trimmed | StoreError) -> Trimmed | None:
        """The answer; None if this stream cannot be trimmed. Raises StoreUnavailable."""
        if isinstance(answer, StoreUnavailable):
            raise answer
        if not isinstance(answer, StoreError):
            return answer
        if not self._failed:
            self._failed = True
            log.warning("redis_trouble", error=f"the stream {stream} cannot be trimmed: {answer}")
        return None
