"""What is wrong between this machine, its Redis and its workers, and how to mend it: `delayq doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from delayq.clock import Clock
from delayq.config import Settings
from delayq.doctor.accounts import check_accounts, write_off
from delayq.doctor.ask import ask_all, redis_now
from delayq.doctor.check import FAIL, OK, WARN, Check
from delayq.doctor.durability import check_durability
from delayq.doctor.owners import check_owners
from delayq.doctor.pools import Progress, check_pools, repair_pools
from delayq.doctor.queues import check_layout, check_parked_routes
from delayq.doctor.server import check_clock, check_server
from delayq.store import commands
from delayq.store.keys import queue_keys
from delayq.store.store import Store

__all__ = ["FAIL", "OK", "WARN", "Check", "Progress", "examine", "redis_now"]


def examine(store: Store, settings: Settings, clock: Clock, repair: Progress | None = None) -> Iterator[Check]:
    """Look at everything that delayq depends on, check by check; raises StoreError.

    It writes nothing, not even the layout of a new Redis, unless `repair` is given: then messages get lost tickets
    back before they are counted.
    """
    yield from check_server(store)
    yield check_durability(store, settings)
    yield check_clock(store, clock)
    layout, check = check_layout(store, settings.queues)
    yield check
    if layout is None:
        return
    stats = ask_all(store, (commands.stats(queue_keys(queue)) for queue in range(layout)))
    yield from check_owners(store, stats)
    yield check_parked_routes(stats, settings.route_table())
    if repair is not None:
        yield repair_pools(store, layout, repair)
    yield from check_pools(store, layout)
    if repair is not None:
        yield from write_off(store, layout)
    else:
        yield from check_accounts(stats)
