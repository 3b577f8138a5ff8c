"""What is wrong between this machine, its Redis and its workers, and how to mend it: `delayq doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from delayq.care.check import FAIL, OK, WARN, Check
from delayq.care.pools import Progress, check_pools, repair_pools
from delayq.clock import Clock
from delayq.config import Settings
from delayq.doctor.access import check_password, check_zookeeper
from delayq.doctor.accounts import check_accounts, write_off
from delayq.doctor.durability import check_durability
from delayq.doctor.owners import check_owners
from delayq.doctor.queues import (
    check_layout,
    check_parked_routes,
    check_parked_streams,
    check_pulled,
    check_reshard,
)
from delayq.doctor.server import check_clock, check_server
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import queue_keys

__all__ = ["FAIL", "OK", "WARN", "Check", "Progress", "examine"]


def examine(store: Store, settings: Settings, clock: Clock, repair: Progress | None = None) -> Iterator[Check]:
    """Look at everything that delayq depends on, check by check; raises StoreError.

    It writes nothing, not even the layout of a new Redis, unless `repair` is given: then messages get lost tickets
    back before they are counted.
    """
    yield from check_server(store)
    yield check_password(store)
    yield from check_zookeeper(settings)
    yield check_durability(store, settings)
    yield check_clock(store, clock)
    layouts, check = check_layout(store, settings.queues)
    yield check
    if not layouts:
        return
    queues = [queue for layout in layouts for queue in layout.numbers]
    stats = store.run_all(commands.stats(queue_keys(queue)) for queue in queues)
    yield from check_reshard(layouts, stats)
    yield from check_owners(store, stats)
    yield check_parked_routes(stats, settings.route_table())
    yield from check_parked_streams(stats, settings.route_table(), settings.redis_url)
    yield from check_pulled(store, stats, clock)
    if repair is not None:
        yield repair_pools(store, queues, repair)
    yield from check_pools(store, queues)
    if repair is not None:
        yield from write_off(store, queues)
    else:
        yield from check_accounts(stats)
