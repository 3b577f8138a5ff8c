"""The checks of queues: their layout, parked and late messages, and their accounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from delayq.client.findings.check import FAIL, OK, WARN, Check, name_queues
from delayq.client.findings.facts import Facts
from delayq.domain.words import counted
from delayq.store.commands import LAYOUT_VERSION, QueueStats
from delayq.store.keys import Layout, ParkedSet

#: The characters of a generated id with its ending.
GENERATED: Final = 27
LATE: Final = 15_000  # ms that a message is overdue before it is a finding


def check_layout(facts: Facts) -> Iterator[Check]:
    """Check whether this version of delayq knows the layout."""
    version, layouts, wanted = facts.version, facts.layouts, facts.settings.queues
    if not version:
        text = "this Redis has no queues yet: nothing was ever scheduled in it, and no worker was started"
        yield Check("layout", WARN, text, "if there should be queues, check that this is the right Redis")
        return
    if version != LAYOUT_VERSION:
        text = f"this Redis has layout version {version}, but this delayq needs {LAYOUT_VERSION}"
        yield Check("layout", FAIL, text, "use the same version of delayq as the workers")
        return
    text = f"layout version {version}, {counted(layouts[-1].queues, 'queue', 'queues')}"
    if wanted is not None and wanted not in [layout.queues for layout in layouts]:
        yield Check("layout", FAIL, f"{text}, but DELAYQ_QUEUES is {wanted}", "unset DELAYQ_QUEUES")
    elif wanted is not None and wanted != layouts[-1].queues:
        text += f", but DELAYQ_QUEUES is still {wanted}: once the old queues are dropped, no process can start with it"
        yield Check("layout", WARN, text, "unset DELAYQ_QUEUES")
    else:
        yield Check("layout", OK, text)


def check_reshard(facts: Facts) -> Iterator[Check]:
    """Check the progress of resharding; no check if none is under way."""
    newest, stats = facts.layouts[-1], facts.stats
    shut = [one.queue for one in stats if one.closed and one.queue in newest.numbers]
    if shut:
        text = f"{name_queues(shut)} closed, but Redis lists no newer layout: no message can be scheduled there"
        mend = "repeat the last `delayq reshard`: it finds the newer layout again"
        yield Check("reshard", FAIL, text, mend)
    old = [one for one in stats if one.queue not in newest.numbers]
    if not old:
        return
    unfinished = [one.queue for one in old if not one.closed]
    if unfinished:
        text = f"{name_queues(unfinished)} of an older layout still open: a reshard was interrupted"
        yield Check("reshard", WARN, text, f"delayq reshard --queues {newest.queues}")
        return
    waiting = sum(one.scheduled + one.parked + one.dead for one in old)
    left = counted(waiting, "message", "messages")
    text = f"{name_queues([one.queue for one in old])} of older layouts closed, with {left} still in them"
    yield Check("reshard", OK, text)


def check_parked_routes(facts: Facts) -> Iterator[Check]:
    """Check for parked messages whose topic or route no live worker has.

    Only the tables of live workers count, because this process may have another one. Without a live worker there is no
    check.
    """
    parked: dict[str, list[int]] = {}
    for one in facts.stats:
        for name in one.parked_sets:
            if ParkedSet.is_of_route(name):
                parked.setdefault(name, []).append(one.queue)
    known = {route.name for line in facts.live for route in line.routes}
    if without := parked.pop(ParkedSet.NO_ROUTE, None):
        text = f"messages are parked in {name_queues(without)}: no live worker has a route for their topics"
        mend = "add a route to DELAYQ_ROUTES of the workers, and restart them; or cancel the messages"
        yield Check("parked", WARN, text, mend)
    routes = {ParkedSet.route(name) or "": queues for name, queues in parked.items()}
    gone = {name: queues for name, queues in routes.items() if name not in known}
    if gone and facts.live and all(line.tells_routes for line in facts.live):
        named = "; ".join(f"{name} in {name_queues(queues)}" for name, queues in sorted(gone.items()))
        text = f"messages are parked for routes that no live worker has: {named}"
        mend = "their owners route them again within seconds; otherwise see delayq routes"
        yield Check("parked", WARN, text, mend)
    elif not without:
        yield Check("parked", OK, "no message is parked for a route that is gone")


def check_parked_streams(facts: Facts) -> Iterator[Check]:
    """A check for each route into streams of this Redis with parked messages: only a full stream parks them."""
    for name in dict.fromkeys(route.name for line in facts.live for route in line.routes if route.local):
        if waiting := [one.queue for one in facts.stats if ParkedSet.of_route(name) in one.parked_sets]:
            text = f"messages of route {name} are parked in {name_queues(waiting)}: their streams accept no messages"
            mend = (
                "grant delayq's user write access to the topics' keys, or see stream_refuses in the log of the workers"
            )
            yield Check("streams", WARN, text, mend, runbook="delayqstreamrefuses")


def check_late(facts: Facts) -> Iterator[Check]:
    """Return a check for queues with messages that are long overdue, if there are any."""
    late = [one for one in facts.stats if one.head_lateness > LATE]
    if not late:
        return
    worst = max(late, key=lambda one: one.head_lateness)
    text = f"{name_queues([one.queue for one in late])} late, the first message by {worst.head_lateness // 1000} s"
    text += f", with {sum(one.due for one in late)} messages due"
    mend = "check that their owners live and keep up (delayq queues), and the other findings"
    yield Check(
        "late", WARN, text, mend, since=worst.head_due, queue=_single(late), runbook="delayqheadoverdue"
    )  # fmt: skip


def check_full_queue(facts: Facts) -> Iterator[Check]:
    """Return a check if one queue has far more messages than its share, because of their ids or ordering keys.

    A batch of generated ids shares a queue, too, but the next batch has another one.
    """
    if facts.full_queue is None:
        return
    keyed = sum(one.record is not None and bool(one.record.ordering_key) for one in facts.sampled)
    chosen = sum(one.record is not None and not one.record.ordering_key and is_chosen(one.id) for one in facts.sampled)
    pool = next(one.pool for one in facts.stats if one.queue == facts.full_queue)
    text = f"queue {facts.full_queue} has {pool} messages, far more than its share"
    if 2 * chosen > len(facts.sampled):
        why = "most of its ids end in a dot and four digits of 0-9 a-f, and this ending chooses the queue"
        mend = "give ids another ending, for example invoice-17-2026 instead of invoice-17.2026"
    elif 2 * keyed > len(facts.sampled):
        why = "most of its messages have ordering keys, and all messages of a key are in one queue"
        mend = "use more ordering keys, for example one for each customer"
    else:
        return
    yield Check("fullQueue", WARN, f"{text}: {why}", mend, queue=facts.full_queue)


def is_chosen(id: str) -> bool:
    """Whether an id that a caller gave ends like one that contains its queue."""
    generated = len(id) == GENERATED and "." not in id[:-5]
    return Layout.has_suffix(id) and not generated


def check_dead_letters(facts: Facts) -> Iterator[Check]:
    """Return a check if there are dead letters, which wait for a decision."""
    if dead := sum(one.dead for one in facts.stats):
        text = f"{counted(dead, 'dead letter waits', 'dead letters wait')} to be redriven or discarded"
        mend = "find out why they died (delayq dead-letters groups)"
        yield Check("deadLetters", WARN, text, mend, since=facts.oldest_dead, runbook="delayqdeadlettersgrowing")


def _single(stats: Sequence[QueueStats]) -> int | None:
    return stats[0].queue if len(stats) == 1 else None


def unaccounted(stats: QueueStats) -> str:
    """Return the figures of a queue that disagree, as a sentence; '' if all agree."""
    if stats.missing > 0:
        return (
            f"{counted(stats.missing, 'message is', 'messages are')} missing from queue {stats.queue}: scheduled, not "
            "ended, and not in the queue"
        )
    if stats.missing < 0:
        return (
            f"queue {stats.queue} has {counted(-stats.missing, 'message', 'messages')} more than were scheduled: its "
            "counters were deleted or edited"
        )
    return ""


def check_accounts(facts: Facts) -> Iterator[Check]:
    """Return a check for each queue whose figures disagree, or one passed check."""
    wrong = {one.queue: sentence for one in facts.stats if (sentence := unaccounted(one))}
    mend = "find out who deleted or edited keys of delayq, and restore them; delayq doctor --repair writes off the rest"
    for queue, sentence in wrong.items():
        yield Check("accounts", FAIL, sentence, mend, queue=queue, runbook="delayqalarm")
    if not wrong:
        yield Check("accounts", OK, "every scheduled message has ended or exists")
