"""Whether all messages are accounted for, and how to go on when some are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delayq.care.audit import unaccounted
from delayq.care.check import FAIL, OK, WARN, Check
from delayq.store import commands
from delayq.store.commands import QueueStats
from delayq.store.connect.store import Store
from delayq.store.keys import queue_keys

__all__ = ["check_accounts", "write_off"]

_GOOD = Check("accounts", OK, "every message that was scheduled has ended or is there")


def check_accounts(stats: Sequence[QueueStats]) -> Iterator[Check]:
    """A check for each queue whose messages are not all accounted for; a single good one if they are."""
    sentences = [sentence for one in stats if (sentence := unaccounted(one))]
    mend = "see who deleted or edited keys of delayq's, restore what can be; delayq doctor --repair writes off the rest"
    yield from [Check("accounts", FAIL, sentence, mend) for sentence in sentences] or [_GOOD]


def write_off(store: Store, queues: Sequence[int]) -> Iterator[Check]:
    """Accept what is missing, so that the next look says what has come to be missing since."""
    missing = store.run_all(commands.write_off(queue_keys(queue)) for queue in queues)
    for queue, count in zip(queues, missing, strict=True):
        if count:
            what = "missing" if count > 0 else "there without having been scheduled"
            yield Check("accounts", WARN, f"queue {queue}: wrote off {abs(count)} messages that were {what}")
    if not any(missing):
        yield _GOOD
