"""Keeps the policies of a node current.

It reads the policies after a change and ends pauses that have expired. It also ends each limit after a pause once the messages
that were slowed down are gone. Several nodes may safely do the same at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog

from delayq.base.errors import StoreError
from delayq.domain.patterns import compiled, overlap
from delayq.domain.policies import Limit, Policies, may_be_lost, number_of
from delayq.domain.routes import Routes
from delayq.store import commands
from delayq.store.commands import HELD_AT_ONCE, Change
from delayq.store.connect.store import Store
from delayq.store.keys import ParkedSet
from workers.queue.queue_context import CurrentPolicies
from workers.queue.symptoms import LossDetector

log = structlog.get_logger()


class PolicyWatch:
    """Belongs to the node's thread. `changed` is called whenever `policies` has other policies.

    `redis_now` returns Unix ms by the clock of Redis.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[int],
        policies: CurrentPolicies,
        losses: LossDetector,
        redis_now: Callable[[], int],
        routes: Routes,
        changed: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._redis_now = redis_now
        self._listed: str | None = None  # the version of the last glance, until the policies are read
        self._store = store
        self._policies = policies
        self._losses = losses
        self._routes = routes
        self._changed = changed

    def observe(self, version: str) -> None:
        """Note the version in Redis."""
        self._listed = version

    def has_news(self) -> bool:
        """Whether Redis or a queue has another version, or a pause has expired."""
        version = self._policies.current.version
        return bool(self._policies.ahead) or self._listed not in (None, version) or bool(self._expired())

    def look(self) -> None:
        """Read the policies if they have changed, and end pauses and limits that are over.

        If the server of the policies cannot be reached, or refuses changes, the node keeps its policies.
        """
        try:
            self._look()
        except StoreError as error:
            log.warning("redis_trouble", error=str(error))

    def _look(self) -> None:
        current = self._policies.current
        ahead, self._policies.ahead = self._policies.ahead, ""
        listed, self._listed = self._listed, None
        ended = self._expired() + self._limits_over(current)
        if ended:
            self._store.run(commands.set_policies(self._store.keys, ended))
        elif not ahead and listed in (None, current.version):
            return
        read = Policies.read(self._store.run(commands.policies(self._store.keys)))
        known = max(ahead, current.version)
        if may_be_lost(known, read.version):
            # The server lost the last changes of the policies, and no worker could pull from a queue that has the lost version.
            # So the policies get a later version. No caller sees one number with two sets of policies.
            self._losses.record(f"the policies went back to version {read.number} from {number_of(known)}")
            self._store.run(commands.set_policies(self._store.keys, (), beyond=known))
            read = Policies.read(self._store.run(commands.policies(self._store.keys)))
        if ahead or read.version != current.version:
            self._policies.current = read  # even with the same version: queues that lag can get it now
            log.info("policies", version=read.number, paused=list(read.paused))
            self._changed()

    def _expired(self) -> list[Change]:
        """The changes that end expired pauses."""
        pauses = self._policies.current.pauses
        if not pauses:
            return []
        now = self._redis_now()
        return [
            Change(f"pause:{match}", "", pause.stored)
            for match, pause in pauses.items()
            if pause.until is not None and now >= pause.until
        ]

    def _limits_over(self, current: Policies) -> list[Change]:
        """The changes that end limits after a pause.

        A limit ends when it holds no message and all messages that were due at its start are gone. Such a message may still be
        in its queue, if there was no worker. Or it is parked for its target, or behind others of its ordering key.
        """
        if not current.limits:
            return []
        over = self._without_messages(current.limits.values())
        found = (
            self._store.run_all(commands.stats(self._store.keys.queue(queue)) for queue in self._queues) if over else []
        )
        parked = {
            (one.queue, name): {limit for limit in over if self._leads(name, limit)}
            for one in found
            for name in one.parked_sets
        }
        asked = [place for place, limits in parked.items() if limits]
        dues = self._store.run_all(
            commands.lowest_due(self._store.keys.queue(queue).parked(name)) for queue, name in asked
        )
        waiting = {
            limit
            for place, due in zip(asked, dues, strict=True)
            for limit in parked[place]
            if due is not None and due <= limit.since
        }
        # Check once more, because a message that has just left a parked set is in its queue.
        over = self._without_messages(limit for limit in over if limit not in waiting)
        return [Change(limit.field, "", limit.stored) for limit in over]

    def _without_messages(self, limits: Iterable[Limit]) -> list[Limit]:
        """The limits of which no queue holds a message, and for which no queue has a message that was due when they were set.

        Usually the first page of held topics shows that a limit lasts. So a limit of 100,000 topics costs as much as of one.
        """
        over = list(limits)
        if over:
            heads = self._store.run_all(
                commands.stats(self._store.keys.queue(queue), most_held=0) for queue in self._queues
            )
            earliest = min((one.head_due for one in heads if one.head_due is not None), default=None)
            over = [limit for limit in over if earliest is None or earliest > limit.since]
        cursors = dict.fromkeys(self._queues, "0")
        while over and cursors:
            asked = [
                commands.held_topics(self._store.keys.queue(queue), cursor, "*", HELD_AT_ONCE // len(self._queues))
                for queue, cursor in cursors.items()
            ]
            pages = dict(zip(cursors, self._store.run_all(asked), strict=True))
            topics = [topic for page in pages.values() for topic in page.counts]
            over = [limit for limit in over if not any(map(compiled(limit.match).match, topics))]
            cursors = {queue: page.cursor for queue, page in pages.items() if page.cursor != "0"}
        return over

    def _leads(self, name: str, limit: Limit) -> bool:
        """Whether messages in this parked set may be of a topic that the limit covers."""
        if (topic := ParkedSet.topic(name)) is not None:
            return compiled(limit.match).match(topic) is not None
        waits_for = ParkedSet.route(name)
        return any(route.name == waits_for and overlap(route.match, limit.match) for route in self._routes.table)
