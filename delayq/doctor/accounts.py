"""Write off missing messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delayq.client.findings import OK, WARN, Check
from delayq.domain.words import counted
from delayq.store import commands
from delayq.store.connect.store import Store


def write_off(store: Store, queues: Sequence[int], entry: str) -> Iterator[Check]:
    """Accept the missing messages, so that the next look reports only later losses."""
    missing = store.run_all(commands.write_off(store.keys.queue(queue), entry=entry) for queue in queues)
    for queue, count in zip(queues, missing, strict=True):
        if count:
            messages = counted(abs(count), "message that was", "messages that were")
            what = "missing" if count > 0 else "present without having been scheduled"
            yield Check("accounts", WARN, f"queue {queue}: wrote off {messages} {what}")
    if not any(missing):
        yield Check("accounts", OK, "every scheduled message has ended or exists")
