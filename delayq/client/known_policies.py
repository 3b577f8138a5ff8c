"""Applies policies to messages that are scheduled: their window, index, expiry and bound.

Policies are applied to encoded messages when they are put into batches. If a queue refuses a batch because it has later
policies, its messages are sent again under these. So a caller need not know the policies beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from delayq.base.clock import Clock, SystemClock
from delayq.domain.codec import tags_of, topic_of, with_policy
from delayq.domain.message import tag_key, topic_key
from delayq.domain.policies import NO_POLICIES, NO_POLICY, Policies, Policy, may_be_lost
from delayq.store.keys import spread

#: ms after which a call that needs the newest policies reads them again.
READ_EVERY = 2_000
#: ms between two counts of a topic that has a bound.
COUNT_EVERY = 1_000
#: Topics whose last count is remembered.
TOPICS = 10_000


class _Count(msgspec.Struct):
    used: int
    at: int


class KnownPolicies:
    """The policies that a client knows, and the numbers of messages of topics that have a bound.

    The policies may be old, because a queue with later ones refuses messages. Threads may share the object.
    """

    __slots__ = ("_asked_at", "_clock", "_counts", "known", "latest", "version")

    def __init__(self, clock: Clock | None = None) -> None:
        self.known: Policies = NO_POLICIES
        #: The version that a schedule names: the known one, or a later one that a queue had when the policies were read.
        self.version = ""
        #: The latest version that this client has read or made: a change that it makes gets a greater number.
        self.latest = ""
        self._clock = clock if clock is not None else SystemClock()
        self._counts: dict[str, _Count] = {}
        self._asked_at: int | None = None

    @property
    def outdated(self) -> bool:
        """Whether the caller has to read the policies now. Other callers use the known ones meanwhile."""
        now = self._clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < READ_EVERY:
            return False
        self._asked_at = now
        return True

    def policy(self, topic: str) -> Policy:
        """The policy of a topic; an empty one if none applies."""
        return self.known.policy(topic) or NO_POLICY

    def take(self, fields: Mapping[str, str], told: str = "") -> None:
        """Keep policies that were read unless they are older; `told` is a version that a queue answered before."""
        self._asked_at = self._clock.monotonic()
        found = Policies.read(fields)
        if may_be_lost(found.version, self.known.version):
            self.known = found
        for version in (found.version, told):
            if may_be_lost(version, self.version):
                self.version = version
        self.latest = max(self.latest, self.version)

    def counted(self, used: Mapping[str, int]) -> None:
        """Record the current numbers of messages of topics."""
        if len(self._counts) + len(used) > TOPICS:  # callers may name any number of topics
            self._counts.clear()
        now = self._clock.monotonic()
        self._counts |= {topic: _Count(count, now) for topic, count in used.items()}

    def room(self, topic: str, most: int) -> bool | None:
        """Whether one more message may be scheduled, which is counted then; None if the topic has to be counted first."""
        count = self._counts.get(topic)
        if count is None or self._clock.monotonic() - count.at >= COUNT_EVERY:
            return None
        if count.used >= most:
            return False
        count.used += 1
        return True


#: The number of replicas that must have a message before its call is answered, and whether it must be on the disk.
Level = tuple[int, bool]


def level_of(policy: Policy) -> Level | None:
    """The durability that a policy asks for; None if it asks for nothing."""
    if not policy.min_replicas and policy.fsync != "always":
        return None
    return policy.min_replicas or 0, policy.fsync == "always"


def indexes_topic(policy: Policy) -> bool:
    """Whether a policy indexes its messages by topic."""
    return policy.pending is not None or "topic" in policy.index


def reserved_keys(policy: Policy, topic: str, tags: str) -> list[str]:
    """The keys by which delayq counts a message of a policy's topic."""
    keys = [topic_key(topic)] if indexes_topic(policy) else []
    if tags and "tags" in policy.index:
        keys.append(tag_key(topic, tags))
    return keys


def fitted(policy: Policy, id: str, body: bytes, window: int | None) -> tuple[bytes, int, int | None]:
    """The body to send, the ms by which the due time is later, and the window; a message's own `window` has precedence."""
    later = 0
    if window is None and policy.window:
        window = policy.window
        later = spread(id, window)
    keys = reserved_keys(policy, topic_of(body).decode(), tags_of(body).decode())
    return with_policy(body, [key.encode() for key in keys], policy.expire_after, later), later, window
