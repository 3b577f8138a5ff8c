"""The problems between this machine, its Redis and its workers, with their remedies: `delayq doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from delayq.base.clock import Clock
from delayq.base.errors import StoreRefused
from delayq.care.pools import Progress, check_pools, repair_pools
from delayq.client.audit import By, entry_of
from delayq.client.findings import FAIL, OK, QUEUES, WARN, Check, read_facts
from delayq.client.findings.durability import check_durability
from delayq.client.findings.queues import check_accounts, check_layout
from delayq.client.findings.server import check_server
from delayq.client.session import retention_of
from delayq.config import Settings
from delayq.doctor.access import MEND, check_password, check_rights, check_zookeeper
from delayq.doctor.accounts import write_off
from delayq.doctor.clock import check_clock
from delayq.doctor.queues import check_pulled
from delayq.store.connect.store import Store

__all__ = ["FAIL", "OK", "WARN", "Check", "Progress", "examine"]


def examine(
    store: Store, settings: Settings, clock: Clock, repair: Progress | None = None, by: By | None = None
) -> Iterator[Check]:
    """Check everything that delayq depends on, check by check. Raises StoreError.

    It writes nothing, not even the layout of a new Redis, unless `repair` is given. Then messages get lost tickets
    back before they are counted, and the audit has `by` for each.
    """
    rights = check_rights(store)
    try:
        facts = store.follow(read_facts(settings, settings.redis_url))
    except StoreRefused as error:
        if rights.result == OK:
            raise
        yield rights
        yield Check("server", FAIL, str(error), MEND)
        return
    yield from (check for check in check_server(facts) if check.name != "rights")
    yield rights
    yield check_password(store)
    yield from check_zookeeper(settings)
    yield from check_durability(facts)
    yield check_clock(store, clock)
    yield from check_layout(facts)
    if not facts.layouts:
        return
    queues = [one.queue for one in facts.stats]
    for look in QUEUES:
        if look is not check_accounts:
            yield from look(facts)
    yield from check_pulled(store, facts.stats, clock)
    if repair is not None:
        yield repair_pools(store, queues, repair, entry_of(by, "repair", retention_of(settings)))
    yield from check_pools(store, queues)
    if repair is not None:
        yield from write_off(store, queues, entry_of(by, "writeOff", retention_of(settings)))
    else:
        yield from check_accounts(facts)
