"""The check that every message in a pool has its ticket, and the repair of lost tickets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from delayq.client.findings import FAIL, OK, WARN, Check
from delayq.domain.words import counted
from delayq.store import commands
from delayq.store.commands import Command, plain
from delayq.store.connect.store import Store
from delayq.store.keys import QueueKeys

TRIES: Final = 5
LOOK: Final = 500
LOOKUPS: Final = 10_000

#: Called during a repair with the queue, the number of messages that were read, and their total.
Progress = Callable[[int, int, int], None]


def check_pools(store: Store, queues: Sequence[int]) -> Iterator[Check]:
    """Return a check for each queue whose counts disagree, or one passed check."""
    agree = True
    for queue in queues:
        pool, tickets, parked = _count(store, queue)
        if pool > tickets + parked:
            agree = False
            text = f"queue {queue}: {pool - tickets - parked} messages have no ticket, so they are never delivered"
            yield Check("pool", FAIL, text, "delayq doctor --repair restores their tickets")
        elif pool < tickets:
            agree = False
            text = f"queue {queue}: {tickets - pool} or more tickets have no message"
            yield Check("pool", WARN, text, "nothing to do: each of them is dropped when it is due")
    if agree:
        yield Check("pool", OK, "every queue has as many tickets as messages")


def lacks_tickets(store: Store, queue: int) -> bool:
    """Return whether a queue has messages without a ticket: they would never be delivered."""
    pool, tickets, parked = _count(store, queue)
    return pool > tickets + parked


def repair_page(store: Store, queue: int, cursor: str, entry: str = "") -> tuple[str, int, int, int]:
    """Repair one page of a queue's pool. Return the next cursor and the numbers of messages read, repaired and buried
    as corrupt.
    """
    # Read again for each page: a message that is parked under an unknown name would look lost.
    names = store.run(_parked_names(store.keys.queue(queue)))
    look = max(10, min(LOOK, LOOKUPS // (1 + len(names))))
    cursor, back, unreadable = store.run(commands.repair(store.keys.queue(queue), names, cursor, look, entry=entry))
    return cursor, look, back, unreadable


def _count(store: Store, queue: int) -> tuple[int, int, int]:
    """Return the messages in the pool, the tickets in the queue and of dead letters, and the parked tickets, all at one
    moment.

    A parked ticket may have lost its message by a cancel.
    """
    keys = store.keys.queue(queue)
    stats = store.run(commands.stats(keys))
    pool, waiting, dead = stats.pool, stats.scheduled, stats.dead
    names = sorted(stats.parked_sets)
    parked: list[int] = []
    for _ in range(TRIES if names else 0):
        counts = [plain("HLEN", keys.pool, read=_same), plain("ZCARD", keys.queue, read=_same)]
        counts += [plain("ZCARD", keys.dead, read=_same), plain("HKEYS", keys.state, read=_same)]
        counts += [plain("ZCARD", keys.parked(name), read=_same) for name in names]
        answers = store.run_all(
            [plain("MULTI", read=_same, key=keys.pool), *counts, plain("EXEC", read=_same, key=keys.pool)]
        )
        pool, waiting, dead, fields, *parked = answers[-1]
        if _names(fields) == names:  # otherwise a set appeared or disappeared between the two reads
            break
        names = _names(fields)
    return pool, waiting + dead, sum(parked)


def repair_pools(store: Store, queues: Sequence[int], progress: Progress, entry: str) -> Check:
    """Read every message of every queue, page by page, and repair it."""
    restored = corrupt = 0
    for queue in queues:
        keys = store.keys.queue(queue)
        total = store.run(plain("HLEN", keys.pool, read=_same))
        looked, cursor = 0, "0"
        while True:
            cursor, look, back, unreadable = repair_page(store, queue, cursor, entry)
            restored, corrupt, looked = restored + back, corrupt + unreadable, looked + look
            if cursor == "0":
                break
            progress(queue, min(looked, total), total)
        progress(queue, total, total)
    tickets = counted(restored, "message has its ticket", "messages have their tickets")
    letters = counted(corrupt, "corrupt message became a dead letter", "corrupt messages became dead letters")
    text = f"{tickets} back, and {letters}"
    return Check("repair", OK, text)


def _same(reply: Any) -> Any:
    return reply


def _names(fields: Sequence[bytes]) -> list[str]:
    names = (field.decode(errors="replace") for field in fields)
    return sorted(name.removeprefix("parked:") for name in names if name.startswith("parked:"))


def _parked_names(keys: QueueKeys) -> Command[list[str]]:
    return plain("HKEYS", keys.state, read=_names)
