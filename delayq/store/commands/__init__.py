"""Every operation as a value: which script, on which keys, with which arguments, and how to read the reply.

Nothing here talks to Redis; `Store` and `AsyncStore` run commands. `now` is '' for the clock of Redis, or a time
(Unix ms) that a test hands in.
"""

from delayq.store.commands.command import EVERY, MOVED, Arg, Command, Now, Replies, Retention, every, plain
from delayq.store.commands.dead_letters import DeadLetter, dead_letters, discard, redrive
from delayq.store.commands.pulling import Claimed, Known, Pulled, claim, count, pull, stored_epoch
from delayq.store.commands.reading import COUNTERS, Found, QueueStats, find, get, stats, write_off
from delayq.store.commands.scheduling import Answers, cancel, reschedule, schedule
from delayq.store.commands.settling import AsPulled, Head, Unparked, ack, bury, park, repair, retry, unpark
from delayq.store.commands.whole import (
    LAYOUT_VERSION,
    Meta,
    bump_era,
    close,
    era,
    forget_node,
    glance,
    layout,
    layouts,
    nodes,
    publish_node,
    redis_now,
    relist,
    retire,
)

__all__ = [
    "COUNTERS",
    "EVERY",
    "LAYOUT_VERSION",
    "MOVED",
    "Answers",
    "Arg",
    "AsPulled",
    "Claimed",
    "Command",
    "DeadLetter",
    "Found",
    "Head",
    "Known",
    "Meta",
    "Now",
    "Pulled",
    "QueueStats",
    "Replies",
    "Retention",
    "Unparked",
    "ack",
    "bump_era",
    "bury",
    "cancel",
    "claim",
    "close",
    "count",
    "dead_letters",
    "discard",
    "era",
    "every",
    "find",
    "forget_node",
    "get",
    "glance",
    "layout",
    "layouts",
    "nodes",
    "park",
    "plain",
    "publish_node",
    "pull",
    "redis_now",
    "redrive",
    "relist",
    "repair",
    "reschedule",
    "retire",
    "retry",
    "schedule",
    "stats",
    "stored_epoch",
    "unpark",
    "write_off",
]
