"""What Redis says of the queues as a whole: their layout, and what is parked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from delayq.doctor.check import FAIL, OK, WARN, Check, name_queues
from delayq.routes import Routes
from delayq.store.commands import LAYOUT_VERSION, QueueStats, plain
from delayq.store.keys import META, Layout
from delayq.store.layouts import read_layouts
from delayq.store.store import Store

__all__ = ["check_layout", "check_parked_routes", "check_reshard"]


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
