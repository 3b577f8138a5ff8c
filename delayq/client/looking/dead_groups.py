"""A plan that groups the newest dead letters by topic and reason; it reads a bounded number of them.

Reasons of the same kind differ by ids and dates. So the class of a reason has no numbers of more than three digits and
nothing that looks like a hash.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from delayq.client.plan import Context, Plan, every_queue
from delayq.store import commands
from delayq.store.commands import Brief
from delayq.store.connect.exchange import all_good
from delayq.store.keys import QueueKeys

#: About how many letters of all queues are read, and how many of one queue at once.
MOST: Final = 20_000
PAGE: Final = 200
EXAMPLES: Final = 3
LONGEST: Final = 120
_VARYING: Final = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4,}){2,}|\d{4,}|\b(?=[a-f]*\d)[0-9a-f]{8,}\b")


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of a topic with the same class of reason; the topic is '' if it cannot be read.

    `count` is their number, `first` and `last` are times of death (Unix ms), and `examples` are ids of the last ones.
    """

    topic: str
    reason: str
    count: int
    first: int
    last: int
    examples: tuple[str, ...]


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of the `looked` newest letters, the largest first. `complete` means that these are all. `now` is Unix ms."""

    now: int
    looked: int
    complete: bool
    groups: list[DeadGroup]


def reason_class(reason: str) -> str:
    """The class of a reason: its text without numbers and hashes."""
    return _VARYING.sub("#", reason)[:LONGEST]


def dead_groups(context: Context) -> Plan[DeadGroups]:
    """Group the newest dead letters; raises StoreError."""

    def ask(keys: QueueKeys, after: tuple[int, str] | None = None) -> commands.Command[list[Brief]]:
        return commands.dead_briefs(keys, PAGE, after)

    (now,) = all_good((yield [commands.redis_now()]))
    found: dict[tuple[str, str], list[Brief]] = {}
    counts: dict[tuple[str, str], int] = {}
    looked = 0
    pages: dict[int, list[Brief]] = yield from every_queue(context, ask)
    while True:
        for page in pages.values():
            looked += len(page)
            for one in page:
                kind = (one.topic, reason_class(one.reason))
                counts[kind] = counts.get(kind, 0) + 1
                briefs = found.setdefault(kind, [])
                briefs.append(one)
                if len(briefs) > EXAMPLES + 1:  # keep the newest ones and the oldest one
                    briefs.sort(key=lambda brief: -brief.buried)
                    del briefs[EXAMPLES:-1]
        left = {queue: page[-1] for queue, page in pages.items() if len(page) == PAGE}
        if not left or looked >= MOST:
            break
        asked = [ask(context.keys.queue(queue), (last.buried, last.id)) for queue, last in left.items()]
        pages = dict(zip(left, all_good((yield asked)), strict=True))
    groups = [_group(topic, reason, counts[topic, reason], briefs) for (topic, reason), briefs in found.items()]
    groups.sort(key=lambda one: (-one.count, one.topic, one.reason))
    return DeadGroups(now=now, looked=looked, complete=not left, groups=groups)


def _group(topic: str, reason: str, count: int, briefs: list[Brief]) -> DeadGroup:
    briefs.sort(key=lambda one: -one.buried)
    examples = tuple(one.id for one in briefs[:EXAMPLES])
    return DeadGroup(
        topic=topic, reason=reason, count=count, first=briefs[-1].buried, last=briefs[0].buried, examples=examples
    )
