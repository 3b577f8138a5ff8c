"""Whether queues with due messages are pulled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from delayq.base.clock import Clock, pause
from delayq.client.findings import FAIL, Check
from delayq.client.findings.check import name_queues
from delayq.client.findings.queues import LATE
from delayq.store.commands import QueueStats
from delayq.store.commands import stats as stats_of
from delayq.store.connect.store import Store

LOOK: Final = 1_500  # ms between two reads: a queue with due messages is pulled many times meanwhile


def check_pulled(store: Store, stats: Sequence[QueueStats], clock: Clock) -> Iterator[Check]:
    """Return a failed check if queues with overdue messages are not pulled at all; otherwise nothing."""
    late = {one.queue: _signs(one) for one in stats if one.head_lateness > LATE}
    if not late:
        return
    pause(clock, LOOK)
    again = store.run_all(stats_of(store.keys.queue(queue)) for queue in late)
    still = [one.queue for one in again if one.head_lateness > LATE and late[one.queue] == _signs(one)]
    if still:
        text = f"{name_queues(still)} with due messages, and no message is pulled"
        yield Check(
            "pulled",
            FAIL,
            text,
            "see /readyz of the worker that owns them, and redis_trouble in its log",
            runbook="delayqqueuenotpulled",
        )


def _signs(stats: QueueStats) -> tuple[int | None, ...]:
    """The values that change while a queue is pulled and its messages are settled."""
    counted = (stats.counters[name] for name in ("delivered", "retried", "buried", "orphans"))
    return stats.watermark, stats.due, stats.parked, *counted
