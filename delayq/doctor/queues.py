"""What Redis says of the queues as a whole: their layout, and what is parked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.doctor.check import FAIL, OK, WARN, Check, name_queues
from delayq.routes import Routes
from delayq.store.commands import LAYOUT_VERSION, QueueStats, plain
from delayq.store.keys import META
from delayq.store.store import Store

__all__ = ["check_layout", "check_parked_routes"]


def _texts(reply: Any) -> list[str]:
    return ["" if one is None else one.decode() for one in reply]


def check_layout(store: Store, wanted: int | None) -> tuple[int | None, Check]:
    """How many queues there are (None: it makes no sense to look further)."""
    queues, version = store.run(plain("HMGET", META, "layouts", "version", read=_texts))
    if not queues.isdigit():
        text = "this Redis has no queues yet: nothing was ever scheduled in it, and no worker was started"
        return None, Check("layout", WARN, text, "if there should be some, see whether this is the right Redis")
    if version != LAYOUT_VERSION:
        text = f"this Redis has layout version {version}, this delayq knows {LAYOUT_VERSION}"
        return None, Check("layout", FAIL, text, "use the version of delayq that the workers have")
    text = f"layout version {version}, {queues} queues"
    if wanted is not None and wanted != int(queues):
        return int(queues), Check("layout", FAIL, f"{text}, but DELAYQ_QUEUES is {wanted}", "unset DELAYQ_QUEUES")
    return int(queues), Check("layout", OK, text)


def check_parked_routes(stats: Sequence[QueueStats], routes: Routes) -> Check:
    """Whether something waits for a target that the route table does not know."""
    known = {route.name for route in routes.table}
    gone: dict[str, list[int]] = {}
    for queue, one in enumerate(stats):
        for name in one.parked_sets:
            if name.startswith("t:") and name[2:] not in known:
                gone.setdefault(name[2:], []).append(queue)
    if not gone:
        return Check("parked", OK, "nothing is parked for a route that is gone")
    named = "; ".join(f"{name} in {name_queues(queues)}" for name, queues in sorted(gone.items()))
    text = f"messages are parked for routes that DELAYQ_ROUTES does not have: {named}"
    mend = "workers route them again by their own table: start one, or give this machine that table"
    return Check("parked", WARN, text, mend)
