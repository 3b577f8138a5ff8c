"""Change the number of queues while delayq runs: list a new layout, then close the old queues.

No message moves. Each step may be interrupted and repeated. The list comes first, so a client that finds a closed queue
always finds the next layout. Policies come next: a paused topic is paused in the new queues before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from delayq.base.clock import Clock, pause
from delayq.base.errors import ConfigError
from delayq.client.changing.policies import bring
from delayq.domain.nodes import read_nodes
from delayq.domain.policies import number_of
from delayq.domain.words import counted
from delayq.store import commands
from delayq.store.commands import QueueStats
from delayq.store.connect.store import Store
from delayq.store.keys import Layout, Layouts, following, write_layouts

#: The time (ms) to wait for nodes to claim new queues, since the last claim.
PATIENCE: Final = 15_000
LOOK_EVERY: Final = 200
TRIES: Final = 5


class ReshardStep(msgspec.Struct, frozen=True):
    """A step that was done (or would be): 'list', 'own', 'policies', 'close' or 'keep', and its subject."""

    step: str
    text: str


def reshard(
    store: Store, queues: int, clock: Clock, *, dry_run: bool = False, entry: str = ""
) -> Iterator[ReshardStep]:
    """Change the number of queues for new messages, step by step. A repeated call continues an interrupted one.

    `entry` is for the audit. Raises ConfigError for invalid changes, and StoreError.
    """
    layouts = store.run(commands.layouts(store.keys))
    if not layouts:
        raise ConfigError(f"this Redis has no queues yet; start delayq with DELAYQ_QUEUES={queues}")
    if layouts[-1].queues == queues and len(layouts) == 1:
        raise ConfigError(f"this Redis has {counted(queues, 'queue', 'queues')} already")
    if layouts[-1].queues != queues:
        yield ReshardStep(
            "list", f"{counted(queues, 'queue', 'queues')}, numbered from {following(layouts, queues).first} on"
        )
        layouts = (*layouts, following(layouts, queues)) if dry_run else _list(store, queues, entry)
    newest = layouts[-1]
    yield _own(store, newest, clock, dry_run=dry_run)
    version = (
        store.run(commands.policies(store.keys)).get("version", "")
        if dry_run
        else store.follow(bring(store.keys, Layouts(layouts)))
    )
    if version:
        # A later pause finds the new queues listed, and the step brings earlier pauses to them. So nothing of a paused
        # topic is pulled there; while no old queue is closed, the new ones are empty.
        yield ReshardStep("policies", f"version {number_of(version)}, to all queues")
    for old in layouts[:-1]:
        stats = _stats(store, old)
        still_open = [one.queue for one in stats if not one.closed]
        if still_open:
            if not dry_run:
                store.run_all([commands.close(store.keys.queue(queue), entry=entry) for queue in still_open])
            yield ReshardStep("close", f"{len(still_open)} of {_named(old)}")
        waiting = sum(one.scheduled + one.parked + one.dead for one in (stats if dry_run else _stats(store, old)))
        left = counted(waiting, "message", "messages")
        yield ReshardStep("keep", f"{_named(old)}, with {left} left")


def _named(layout: Layout) -> str:
    return f"the {counted(layout.queues, 'queue', 'queues')} from {layout.first} on"


def _list(store: Store, queues: int, entry: str) -> tuple[Layout, ...]:
    """List the new layout, even if others change the list meanwhile."""
    for _ in range(TRIES):
        before = store.run(commands.layouts(store.keys))
        if before and before[-1].queues == queues:  # another caller did
            return before
        after = (*before, following(before, queues))
        if store.run(commands.set_layouts(store.keys, before, after, entry=entry)) == after:
            return after
    raise ConfigError(
        f"others keep changing the layouts (they are {write_layouts(before)}); find out who else reshards"
    )


def _own(store: Store, newest: Layout, clock: Clock, *, dry_run: bool) -> ReshardStep:
    """Wait until the live nodes own the new queues, so that new messages are on time. Raises ConfigError."""
    lines, now = store.run(commands.nodes(store.keys)), store.run(commands.redis_now())
    live = sum(not line.stale for line in read_nodes(lines, now).values())
    by = f"{counted(newest.queues, 'queue', 'queues')}, by {counted(live, 'live node', 'live nodes')}"
    if dry_run or not live:
        return ReshardStep("own", by)
    owned, end = -1, clock.monotonic() + PATIENCE
    while (now_owned := sum(one.epoch is not None for one in _stats(store, newest))) < newest.queues:
        if now_owned > owned:
            owned, end = now_owned, clock.monotonic() + PATIENCE
        elif clock.monotonic() >= end:
            raise ConfigError(
                f"only {owned} of the {newest.queues} new queues have an owner, so no queue was closed. See "
                "delayq doctor and the versions of the nodes, then repeat the command"
            )
        pause(clock, LOOK_EVERY)
    return ReshardStep("own", by)


def _stats(store: Store, layout: Layout) -> list[QueueStats]:
    return store.run_all([commands.stats(store.keys.queue(queue), most_held=0) for queue in layout.numbers])
