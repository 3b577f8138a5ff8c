"""What policies say of messages when they are scheduled: later by a window, counted, expiring, no more than so many.

It is done to messages that are encoded already, where they are put into batches: so those that a queue refuses, since it
has later policies, go out again by these, and who schedules need not know the policies before.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from delayq.clock import Clock, SystemClock
from delayq.codec import tags_of, topic_of, with_policy
from delayq.message import tag_key, topic_key
from delayq.policies import NO_POLICIES, Policies, Policy
from delayq.store.keys import spread

__all__ = ["COUNT_EVERY", "Level", "PolicyBook", "fitted", "indexes_topic", "level_of"]

#: ms between two counts of a topic whose messages are bounded.
COUNT_EVERY = 1_000
#: So many topics of which the last count is kept.
TOPICS = 10_000


class _Count(msgspec.Struct):
    used: int
    at: int


class PolicyBook:
    """The policies that a client knows, and how many messages there are of topics that may have only so many.

    They may be as old as they like: a queue that has later ones says so. Threads may share it.
    """

    __slots__ = ("_clock", "_counts", "known", "version")

    def __init__(self, clock: Clock | None = None) -> None:
        self.known: Policies = NO_POLICIES
        #: What a schedule says that it follows: the version that is known, or a later one that a queue had when that was read.
        self.version = ""
        self._clock = clock if clock is not None else SystemClock()
        self._counts: dict[str, _Count] = {}

    def take(self, fields: Mapping[str, str], told: str = "") -> None:
        """Know what was read, unless it is older than what is known; `told` is a version that a queue had before."""
        found = Policies.read(fields)
        if found.version > self.known.version:
            self.known = found
        self.version = max(self.version, found.version, told)

    def counted(self, used: Mapping[str, int]) -> None:
        """So many messages of these topics there are now."""
        if len(self._counts) + len(used) > TOPICS:  # topics come from outside
            self._counts.clear()
        now = self._clock.monotonic()
        self._counts |= {topic: _Count(count, now) for topic, count in used.items()}

    def room(self, topic: str, most: int) -> bool | None:
        """Whether one more may be scheduled, which then counts; None: count them first."""
        count = self._counts.get(topic)
        if count is None or self._clock.monotonic() - count.at >= COUNT_EVERY:
            return None
        if count.used >= most:
            return False
        count.used += 1
        return True


#: In how many replicas a message has to be before its call is answered, and whether on the disk.
Level = tuple[int, bool]


def level_of(policy: Policy) -> Level | None:
    """What a policy wants of that; None: nothing."""
    if not policy.min_replicas and policy.fsync != "always":
        return None
    return policy.min_replicas or 0, policy.fsync == "always"


def indexes_topic(policy: Policy) -> bool:
    """Whether messages that it covers are indexed by their topic."""
    return policy.pending is not None or "topic" in policy.index


def fitted(policy: Policy, id: str, body: bytes, window: int | None) -> tuple[bytes, int, int | None]:
    """What is sent of an encoded message, by how many ms its due is later, and its window; its own `window` comes first."""
    later = 0
    if window is None and policy.window:
        window = policy.window
        later = spread(id, window)
    keys: list[bytes] = []
    if indexes_topic(policy):
        keys.append(topic_key(topic_of(body).decode()).encode())
    if "tags" in policy.index and (tags := tags_of(body)):
        keys.append(tag_key(topic_of(body).decode(), tags.decode()).encode())
    return with_policy(body, keys, policy.expire_after, later), later, window
