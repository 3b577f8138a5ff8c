"""A plan that changes all messages that carry a business key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from delayq.base.errors import StoreError
from delayq.client.plan import Context, Plan, every_queue
from delayq.domain.message import check_key
from delayq.store import commands
from delayq.store.commands import Carriers, Command
from delayq.store.keys import QueueKeys

#: Messages of a queue on one page.
PAGE: Final = 1_000
#: Messages of a queue that have ended and are still remembered, on all pages.
MOST_ENDED: Final = 1_000
#: Pages of a queue that one call goes through, so that it ends although others schedule meanwhile.
MOST_PAGES: Final = 1_000


def by_key(context: Context, key: str, each: Callable[[Context, list[str]], Plan[list[Any]]]) -> Plan[list[Any]]:
    """Run `each` on every page of the messages that carry a business key, and return their outcomes, page by page.

    Messages that have ended and are still remembered are included, up to MOST_ENDED of each queue: `each` returns how they
    ended. If the first page cannot be read, its error is raised. The error of a later page is the last outcome, and
    everything before it was done.
    """
    check_key(key, context.limits, "key")
    outcomes: list[Any] = []
    ended: Counter[int] = Counter()

    def ask(keys: QueueKeys, behind: str = "") -> Command[Carriers]:
        left = max(0, MOST_ENDED - ended[keys.number])
        return commands.find_by_key(keys, key, PAGE, behind, ended=left, retention=context.retention)

    pages = yield from every_queue(context, ask)
    for _ in range(MOST_PAGES):
        ids = sorted(id for page in pages.values() for id in (*page, *page.ended))
        outcomes += yield from each(context, ids)
        ended.update({queue: len(page.ended) for queue, page in pages.items()})
        behind = {queue: page.behind for queue, page in pages.items() if page.behind}
        if not behind:
            break
        answers = yield [ask(context.keys.queue(queue), id) for queue, id in behind.items()]
        for answer in answers:
            if isinstance(answer, StoreError):
                return [*outcomes, answer]
        pages = dict(zip(behind, answers, strict=True))
    return outcomes
