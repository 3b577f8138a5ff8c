"""What Redis says of the queues as a whole: their layout, what is parked, and whether they are pulled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from delayq.care.check import FAIL, OK, WARN, Check, name_queues
from delayq.clock import Clock, pause
from delayq.routes import Routes
from delayq.store.commands import LAYOUT_VERSION, QueueStats, plain
from delayq.store.commands import stats as stats_of
from delayq.store.connect.store import Store
from delayq.store.keys import META, Layout, queue_keys, read_layouts
from delayq.targets.redis_stream.target import is_local

__all__ = ["check_layout", "check_parked_routes", "check_parked_streams", "check_pulled", "check_reshard"]

LATE: Final = 15_000  # ms for which a message is due before it is looked whether its queue is pulled
LOOK: Final = 1_500  # ms between two looks: a queue with something due is pulled many times meanwhile


def _texts(reply: Any) -> list[str]:
    return ["" if one is None else one.decode() for one in reply]


def check_layout(store: Store, wanted: int | None) -> tuple[tuple[Layout, ...], Check]:
    """The layouts, oldest first (none: it makes no sense to look further)."""
    listed, version = store.run(plain("HMGET", META, "layouts", "version", read=_texts))
    if not listed:
        text = "this Redis has no queues yet: nothing was ever scheduled in it, and no worker was started"
        return (), Check("layout", WARN, text, "if there should be some, see whether this is the right Redis")
    if version != LAYOUT_VERSION:
        text = f"this Redis has layout version {version}, this delayq knows {LAYOUT_VERSION}"
        return (), Check("layout", FAIL, text, "use the version of delayq that the workers have")
    layouts = read_layouts(listed)
    text = f"layout version {version}, {layouts[-1].queues} queues"
    if wanted is not None and wanted not in [layout.queues for layout in layouts]:
        return layouts, Check("layout", FAIL, f"{text}, but DELAYQ_QUEUES is {wanted}", "unset DELAYQ_QUEUES")
    if wanted is not None and wanted != layouts[-1].queues:
        text += f", but DELAYQ_QUEUES is still {wanted}: once the old queues are gone, nothing starts with it"
        return layouts, Check("layout", WARN, text, "unset DELAYQ_QUEUES")
    return layouts, Check("layout", OK, text)


def check_reshard(layouts: Sequence[Layout], stats: Sequence[QueueStats]) -> Iterator[Check]:
    """How far queues have been resharded; nothing if they never were, or are done with it."""
    newest = layouts[-1]
    shut = [one.queue for one in stats if one.closed and one.queue in newest.numbers]
    if shut:
        text = f"{name_queues(shut)} closed, though delayq:meta lists no newer layout: nothing can be scheduled there"
        mend = "run the `delayq reshard` again that was run last: what a newer layout has is found again"
        yield Check("reshard", FAIL, text, mend)
    old = [one for one in stats if one.queue not in newest.numbers]
    if not old:
        return
    unfinished = [one.queue for one in old if not one.closed]
    if unfinished:
        text = f"{name_queues(unfinished)} of an older layout open still: a reshard was broken off"
        yield Check("reshard", WARN, text, f"delayq reshard --queues {newest.queues}")
        return
    waiting = sum(one.scheduled + one.parked + one.dead for one in old)
    text = f"{name_queues([one.queue for one in old])} of older layouts closed, with {waiting} messages still in them"
    yield Check("reshard", OK, text)


def check_parked_routes(stats: Sequence[QueueStats], routes: Routes) -> Check:
    """Whether something waits for a target that the route table does not know."""
    known = {route.name for route in routes.table}
    gone: dict[str, list[int]] = {}
    for one in stats:
        for name in one.parked_sets:
            if name.startswith("t:") and name[2:] not in known:
                gone.setdefault(name[2:], []).append(one.queue)
    if not gone:
        return Check("parked", OK, "nothing is parked for a route that is gone")
    named = "; ".join(f"{name} in {name_queues(queues)}" for name, queues in sorted(gone.items()))
    text = f"messages are parked for routes that DELAYQ_ROUTES does not have: {named}"
    mend = "workers route them again by their own table: start one, or give this machine that table"
    return Check("parked", WARN, text, mend)


def check_parked_streams(stats: Sequence[QueueStats], routes: Routes, redis_url: str) -> Iterator[Check]:
    """A check for each route into streams of this Redis for which messages wait: nothing else sets them aside."""
    for route in routes.table:
        if not is_local(route, redis_url):
            continue
        if waiting := [one.queue for one in stats if f"t:{route.name}" in one.parked_sets]:
            text = f"messages of route {route.name} are parked in {name_queues(waiting)}: their streams take nothing"
            mend = "let delayq's user write to the topics' keys, or see stream_refuses in the log of the workers"
            yield Check("streams", WARN, text, mend)


def check_pulled(store: Store, stats: Sequence[QueueStats], clock: Clock) -> Iterator[Check]:
    """A check that fails if queues in which something has long been due are not pulled at all; else nothing."""
    late = {one.queue: _signs(one) for one in stats if one.head_lateness > LATE}
    if not late:
        return
    pause(clock, LOOK)
    again = store.run_all(stats_of(queue_keys(queue)) for queue in late)
    still = [one.queue for one in again if one.head_lateness > LATE and late[one.queue] == _signs(one)]
    if still:
        text = f"{name_queues(still)} with messages that are due, and nothing becomes of them"
        yield Check("pulled", FAIL, text, "see /readyz of the worker that owns them, and redis_trouble in its log")


def _signs(stats: QueueStats) -> tuple[int | None, ...]:
    """What changes while a queue is pulled and its messages are settled."""
    counted = (stats.counters[name] for name in ("forwarded", "retried", "buried", "orphans"))
    return stats.watermark, stats.due, stats.parked, *counted
