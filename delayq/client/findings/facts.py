"""The facts that checks read, which take three round trips to Redis, and one more if there are consumer groups.

If a queue has far more messages than its share, some of them are read, too: their ids may say why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.client.looking.groups import ConsumerGroup, some_lags, sorted_groups
from delayq.client.looking.service import RouteState, route_states
from delayq.client.plan import Plan
from delayq.config import Settings
from delayq.domain.nodes import NodeLine, read_nodes
from delayq.domain.policies import Policies
from delayq.store import checks, commands
from delayq.store.checks import ServerSettings
from delayq.store.commands import LAYOUT_VERSION, Found, QueueStats, plain
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys, Layout, ParkedSet, read_layouts

#: Sets of held messages that are counted at most.
MOST_HELD: Final = 2_000


#: A queue is full if it has this many messages and this many times its share, of at least this many queues.
LEAST_FULL: Final = 1_000
TIMES_ITS_SHARE: Final = 3
FEWEST_QUEUES: Final = 4
#: The number of its messages that are read.
SAMPLED: Final = 100


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts at `now` (Unix ms by the clock of Redis); only those of the server if its layout is unknown to this
    delayq.

    `held` counts the messages that a pause or a limit holds, or is None if their topics are too many. `oldest_dead` is
    the time of death of the oldest dead letter. `stale_keys` is the reason why the file of keys of an API process is
    not in force. `groups` are consumer groups, the first ones of very many. `sampled` are messages of `full_queue`, which
    has far more than its share.
    """

    settings: Settings
    redis_url: str
    now: int
    server: ServerSettings
    version: str
    layouts: tuple[Layout, ...]
    era: int
    nodes: dict[str, NodeLine]
    stats: Sequence[QueueStats]
    routes: Sequence[RouteState]
    held: int | None
    policies: Policies
    oldest_dead: int | None = None
    stale_keys: str = ""
    groups: Sequence[ConsumerGroup] = ()
    full_queue: int | None = None
    sampled: Sequence[Found] = ()

    @property
    def live(self) -> list[NodeLine]:
        """The live nodes."""
        return [line for line in self.nodes.values() if not line.stale]


def _meta(reply: Any) -> tuple[str, str, int]:
    listed, version, era = ("" if one is None else one.decode() for one in reply)
    return listed, version, int(era or 0)


def read_facts(settings: Settings, redis_url: str) -> Plan[Facts]:
    """Read the facts and write nothing; raises StoreError."""
    keys = Keys(settings.namespace)
    questions = checks.questions(keys, "always")
    answers = yield [
        commands.redis_now(), plain("HMGET", keys.meta, "layouts", "version", "era", read=_meta), commands.nodes(keys),
        commands.policies(keys), commands.consumer_groups(keys), *questions
    ]  # fmt: skip
    now, (listed, version, era), lines, set_, groups = all_good(answers[:5])
    layouts = read_layouts(listed) if version == LAYOUT_VERSION else ()
    nodes = read_nodes(lines, now)
    stats: list[QueueStats] = []
    routes: list[RouteState] = []
    if layouts:
        queues = [keys.queue(one) for layout in layouts for one in layout.numbers]
        stats = all_good((yield [commands.stats(one, most_held=MOST_HELD + 1) for one in queues]))
        routes = yield from route_states(keys, nodes, stats)
    full = fullest(layouts, stats)
    sample = [] if full is None else [commands.page(keys.queue(full.queue), look=SAMPLED)]
    held = [(one.queue, topic) for one in stats for topic in one.held_topics]
    counted = held if len(held) <= MOST_HELD else []
    count = [commands.count_parked(keys.queue(queue), ParkedSet.of_topic(topic)) for queue, topic in counted]
    dead = [commands.lowest_due(keys.queue(one.queue).dead) for one in stats if one.dead]
    found: list[Any] = all_good((yield [*count, *dead, *sample])) if count or dead or sample else []
    counts, rest = found[: len(count)], found[len(count) :]
    died = [one for one in rest[: len(dead)] if one is not None]
    read = [one for page in rest[len(dead) :] for one in page.messages]
    lags = yield from some_lags(keys, sorted_groups(keys, groups))
    return Facts(
        settings=settings,
        redis_url=redis_url,
        now=now,
        server=checks.told(answers[5:]),
        version=version if listed else "",
        layouts=layouts,
        era=era,
        nodes=nodes,
        stats=stats,
        routes=routes,
        policies=Policies.read(set_),
        held=sum(one or 0 for one in counts) if len(counts) == len(held) else None,
        oldest_dead=min(died, default=None),
        groups=lags,
        full_queue=None if full is None else full.queue,
        sampled=read,
    )


def fullest(layouts: Sequence[Layout], stats: Sequence[QueueStats]) -> QueueStats | None:
    """Return the queue of the newest layout that has far more messages than its share; None if there is none."""
    own = [one for one in stats if layouts and one.queue in layouts[-1].numbers]
    full = max(own, key=lambda one: one.pool, default=None)
    if full is None or len(own) < FEWEST_QUEUES or full.pool < LEAST_FULL:
        return None
    return full if full.pool * len(own) > TIMES_ITS_SHARE * sum(one.pool for one in own) else None
