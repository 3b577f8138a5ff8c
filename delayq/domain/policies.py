"""Policies and pauses of topics: settings that can be changed while delayq runs, for all topics of a pattern.

All of them have one version in Redis, which every queue has too: a pull with another version pulls nothing. Times are
Unix ms, durations ms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.base.remembered import Remembered
from delayq.base.times import Duration, check_unix_ms
from delayq.domain.message import MOST, Limits, bounds_of, given_duration
from delayq.domain.patterns import check_pattern, compiled, covers, overlap

#: The number of topics whose policies are remembered.
REMEMBERED: Final = 10_000
#: A limit below this rate (messages per second) is as good as a pause.
LEAST_RATE: Final = 0.01
#: Streams are trimmed about once a minute, so a shorter age (ms) would promise too much.
LEAST_AGE: Final = 1_000
LONGEST_REASON: Final = 200
MOST_STEPS: Final = 64
#: The most hand-backs, and the most deliveries to a consumer group, of one message.
MOST_RECEIPTS: Final = 1_000
MOST_PATHS: Final = 100
#: The bytes of a policy in Redis: all workers and clients read all policies.
LONGEST_TEXT: Final = 4_096

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}")  # URLs fold a segment of one or two dots
_PATH: Final = re.compile(r"\$(?:\.[A-Za-z0-9_-]+|\[(?:\d{1,6}|\*)\])+")

Ms = Annotated[int, msgspec.Meta(description="ms")]
T = TypeVar("T")
#: The types of fields, in words.
_SAID: Final[dict[Any, str]] = {
    str: "text",
    str | None: "text",
    int: "a whole number",
    int | None: "a whole number",
    Ms | None: "a whole number of ms",
    tuple[Ms, ...]: "a list of whole numbers of ms",
    tuple[str, ...]: "a list of texts",
    float: "a number",
    float | None: "a number",
    bool: "true or false",
    Literal["topic", "policy"]: "'topic' or 'policy'",
}
_Found = tuple["Pause | None", "Policy | None", "Limit | None", "Bucket | None", "Slots | None"]


class _Set(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An entry of the hash.

    `match` covers topics, with `*` and `?`. `since` is the time of its last change. `stored` is its text, so that a
    change is made only if it is still the same.
    """

    match: str = ""
    since: int = 0
    stored: str = ""

    @property
    def field(self) -> str:
        """Return its field in the hash."""
        return f"{type(self).__name__.lower()}:{self.match}"

    @property
    def text(self) -> str:
        """Return its text in the hash: the same text for the same entry."""
        return msgspec.json.encode(self._bare()).decode()

    def _bare(self) -> Self:
        return msgspec.structs.replace(self, match="", since=0, stored="")

    def _check_types(self) -> None:
        """Raise InvalidMessage for the first field that could not be read again."""
        for field in msgspec.structs.fields(type(self)):
            value = getattr(self, field.name)
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                raise InvalidMessage(field.encode_name, f"must be {_SAID[field.type]}, not {value!r:.100}") from None


class Pause(_Set, frozen=True, kw_only=True):
    """A pause: nothing of its topics is pulled, until it is removed or `until` has passed by the clock of Redis."""

    reason: str = ""
    until: Ms | None = None

    def check(self, limits: Limits, now: int) -> None:
        """Raise InvalidMessage for the first invalid field. `now` is the time of Redis (Unix ms)."""
        self._check_types()
        check_pattern(self.match)
        if len(self.reason) > LONGEST_REASON or _CONTROL.search(self.reason):
            raise InvalidMessage("reason", f"must be at most {LONGEST_REASON} characters on one line")
        if self.until is not None and self.until <= now:
            try:
                check_unix_ms(self.until)
            except ValueError as error:  # it may be in seconds
                raise InvalidMessage("until", str(error)) from None
            raise InvalidMessage("until", "has passed; omit it for a pause without an end")
        if self.until is not None and self.until > now + limits.horizon:
            raise InvalidMessage("until", "is too far in the future; omit it for a pause without an end")


class Limit(_Set, frozen=True, kw_only=True):
    """The limit after a pause: messages per second, until nothing is held."""

    rate: float = 0.0

    @property
    def bucket(self) -> Bucket:
        """The bucket of all its topics."""
        return Bucket.of_topics(f"limit/{self.match}", self.rate, math.ceil(self.rate))

    def _bare(self) -> Self:
        return msgspec.structs.replace(self, match="", since=0, stored="", rate=float(self.rate))

    def check(self) -> None:
        """Raise InvalidMessage for the first invalid field."""
        self._check_types()
        check_pattern(self.match)
        _check_range("rate", self.rate, 1, MOST)


class Policy(_Set, frozen=True, kw_only=True):
    """A policy of topics. If several match a topic, only the first applies, by `order`, then by `name`; they are never
    merged.

    `rate` is messages per second, and `burst` the maximum at once; with `per` 'topic', each topic has its own.
    `max_in_flight` is the number of sends at a time. `window` spreads due times. `backoff` are the waits after the first
    failure of a message, the second and so on. A failure is a failed attempt to deliver it, or a hand-back. After more
    than `max_hand_backs`, or `max_deliveries` to a consumer group whose leases ended, it becomes a dead letter.
    `pending` bounds waiting messages, `index` makes counts exact, and `redact` hides parts of bodies. `min_replicas` and
    `fsync` are the durability that a call that schedules waits for. `retention_age` and
    `retention_length` bound the streams of its topics: workers trim older entries that every group has acknowledged, with
    `retention_force` all older entries.
    """

    name: str = ""
    order: int = 100
    rate: float | None = None
    burst: int | None = None
    per: Literal["topic", "policy"] = "topic"
    max_in_flight: int | None = None
    window: Ms | None = None
    max_attempts: int | None = None
    backoff: tuple[Ms, ...] = ()
    max_hand_backs: int | None = None
    max_deliveries: int | None = None
    expire_after: Ms | None = None
    pending: int | None = None
    index: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    min_replicas: int | None = None
    fsync: str | None = None
    retention_age: Ms | None = None
    retention_length: int | None = None
    retention_force: bool = False

    if TYPE_CHECKING:  # the given types may be more than those of the fields

        def __init__(
            self,
            *,
            match: str = "",
            since: int = 0,
            stored: str = "",
            name: str = "",
            order: int = 100,
            rate: float | None = None,
            burst: int | None = None,
            per: Literal["topic", "policy"] = "topic",
            max_in_flight: int | None = None,
            window: Duration | None = None,
            max_attempts: int | None = None,
            backoff: Sequence[Duration] = (),
            max_hand_backs: int | None = None,
            max_deliveries: int | None = None,
            expire_after: Duration | None = None,
            pending: int | None = None,
            index: tuple[str, ...] = (),
            redact: tuple[str, ...] = (),
            min_replicas: int | None = None,
            fsync: str | None = None,
            retention_age: Duration | None = None,
            retention_length: int | None = None,
            retention_force: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, field in (
            ("window", "window"),
            ("expire_after", "expireAfter"),
            ("retention_age", "retentionAge"),
        ):
            value: Any = getattr(self, name)
            if isinstance(value, str | timedelta):
                msgspec.structs.force_setattr(self, name, given_duration(field, value))
        waits: Any = self.backoff
        if isinstance(waits, list | tuple) and any(isinstance(one, str | timedelta) for one in waits):
            msgspec.structs.force_setattr(self, "backoff", tuple(given_duration("backoff", one) for one in waits))

    @property
    def field(self) -> str:
        """Return its field in the hash."""
        return f"policy:{self.name}"

    @property
    def for_workers(self) -> bool:
        """Whether it has a setting that workers apply; the others are for calls that schedule or read."""
        return any((self.rate, self.max_in_flight, self.max_attempts, self.backoff))

    @property
    def trims(self) -> bool:
        """Whether workers trim the streams of its topics."""
        return self.retention_age is not None or self.retention_length is not None

    def _bare(self) -> Self:
        rate = None if self.rate is None else float(self.rate)
        lists = {name: tuple(getattr(self, name)) for name in ("backoff", "index", "redact")}
        return msgspec.structs.replace(self, name="", since=0, stored="", rate=rate, **lists)

    def check(self, limits: Limits) -> None:
        """Raise InvalidMessage for the first invalid field."""
        self._check_types()
        check_policy_name(self.name)
        check_pattern(self.match)
        _check_range("order", self.order, 0, 1_000_000)
        if self.rate == 0:
            raise InvalidMessage("rate", "must be above 0; pause the topics instead")
        _check_range("rate", self.rate, LEAST_RATE, MOST)
        _check_range("burst", self.burst, 1, MOST)
        if self.burst is not None and self.rate is None:
            raise InvalidMessage("burst", "needs a rate")
        if self.per == "policy" and self.rate is None and self.max_in_flight is None:
            raise InvalidMessage("per", "needs a rate or a maxInFlight, which it is about")
        _check_range("maxInFlight", self.max_in_flight, 1, 1_000_000)
        _check_range("window", self.window, *bounds_of("window", limits))
        _check_range("maxAttempts", self.max_attempts, *bounds_of("maxAttempts", limits))
        if len(self.backoff) > MOST_STEPS:
            raise InvalidMessage("backoff", f"has more than {MOST_STEPS} waits; the last one repeats")
        for wait in self.backoff:
            _check_range("backoff", wait, 1, limits.horizon)
        _check_range("maxHandBacks", self.max_hand_backs, 0, MOST_RECEIPTS)
        _check_range("maxDeliveries", self.max_deliveries, 1, MOST_RECEIPTS)
        _check_range("expireAfter", self.expire_after, *bounds_of("expireAfter", limits))
        _check_range("pending", self.pending, 1, MOST)
        if not set(self.index) <= {"topic", "tags"} or len(set(self.index)) < len(self.index):
            raise InvalidMessage("index", "must be 'topic', 'tags' or both, each once")
        if len(self.redact) > MOST_PATHS or not all(_PATH.fullmatch(one) and len(one) <= 255 for one in self.redact):
            raise InvalidMessage(
                "redact", f"must be at most {MOST_PATHS} JSON paths such as '$.card' or '$.items[*].name'"
            )
        _check_range("minReplicas", self.min_replicas, 0, 100)
        if self.fsync not in (None, "everysec", "always"):
            raise InvalidMessage("fsync", "must be 'everysec' or 'always'")
        _check_range("retentionAge", self.retention_age, LEAST_AGE, limits.horizon)
        _check_range("retentionLength", self.retention_length, 1, MOST)
        if self.retention_force and not self.trims:
            raise InvalidMessage("retentionForce", "needs a retentionAge or a retentionLength")
        if (size := len(self.text)) > LONGEST_TEXT:
            raise InvalidMessage("redact", f"the policy has {size:,} bytes; at most {LONGEST_TEXT:,} are allowed")
        if self.text == Policy(match=self.match, order=self.order, per=self.per).text:
            raise InvalidMessage("rate", "the policy is empty; set a rate, a window, or another field")


def check_policy_name(value: object) -> str:
    """Return the name of a policy. Raises InvalidMessage."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidMessage("name", "must be 1 to 64 characters of A-Z a-z 0-9 . _ -, not '.' or '..'")
    return value


def _check_range(field: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidMessage(field, f"must be between {least} and {most}, not {value}")


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket: `rate` messages per second, and `burst` at once, shared by all with the same bucket name."""

    name: str
    rate: float
    burst: int

    @classmethod
    def of_topics(cls, name: str, rate: float, burst: int) -> Self:
        """Return the bucket of a topic, or of all topics of a policy or a limit."""
        return cls(f"t:{name}", rate, burst)

    def is_of(self, topic: str) -> bool:
        """Whether the topic has its own bucket."""
        return self.name == f"t:{topic}"


class Slots(msgspec.Struct, frozen=True):
    """Slots: `most` sends at a time, shared by all with the same name."""

    name: str
    most: int


class Policies:
    """All policies, pauses and limits of one `version`. The object never changes."""

    def __init__(
        self,
        version: str = "",
        pauses: Mapping[str, Pause] | None = None,
        policies: Mapping[str, Policy] | None = None,
        limits: Mapping[str, Limit] | None = None,
        changed: int = 0,
    ) -> None:
        self.version = version
        self.changed = changed  # the first time of this version, Unix ms
        self.pauses = dict(pauses or {})  # by pattern
        self.policies = dict(policies or {})  # by name
        self.limits = dict(limits or {})  # by pattern
        #: In their order: if several match a topic, the first applies.
        self.by_age = sorted(self.pauses.values(), key=lambda one: (one.since, one.match))
        self.in_order = sorted(self.policies.values(), key=lambda one: (one.order, one.name))
        self._pauses = [(compiled(one.match), one) for one in self.by_age]
        self._policies = [(compiled(one.match), one) for one in self.in_order]
        self._limits = [(compiled(one.match), one) for one in self.limits.values()]
        #: Whether any policy needs slots; and whether any topic is limited.
        self.slotted = any(one.max_in_flight for one in self.policies.values())
        self.limited = self.slotted or bool(self.limits) or any(one.rate for one in self.policies.values())
        #: Whether any policy has workers trim streams.
        self.trims = any(one.trims for one in self.policies.values())
        self._known: Remembered[str, _Found] = Remembered(REMEMBERED)

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> Policies:
        """Parse the hash in Redis. A pause that cannot be read counts as one without an end; other entries are left
        out. An `expireAfter` of 0, which older versions accept, is left out too.
        """
        found: dict[str, dict[str, Any]] = {"pause": {}, "policy": {}, "limit": {}}
        for field, text in fields.items():
            kind, _, name = field.partition(":")
            if kind not in found:
                continue
            since, _, stored = text.partition(" ")
            known = {"since": int(since) if since.isdecimal() else 0, "stored": stored}
            of_it = {"name": name} if kind == "policy" else {"match": name}
            try:
                one = msgspec.convert({**msgspec.json.decode(stored), **of_it, **known}, _KINDS[kind])
            except (msgspec.MsgspecError, TypeError):
                if kind != "pause":
                    continue
                one = msgspec.convert({**of_it, **known}, Pause)
            if isinstance(one, Policy) and one.expire_after == 0:  # of an older version: every message would expire
                one = msgspec.structs.replace(one, expire_after=None)
            found[kind][name] = one
        changed = fields.get("changed", "")
        return cls(
            fields.get("version", ""),
            found["pause"],
            found["policy"],
            found["limit"],
            int(changed) if changed.isdecimal() else 0,
        )

    @property
    def number(self) -> int:
        """Return the version for callers, as a number."""
        return number_of(self.version)

    @property
    def paused(self) -> tuple[str, ...]:
        """The patterns of the topics that are paused."""
        return tuple(sorted(self.pauses))

    def pause(self, topic: str) -> Pause | None:
        """Return the oldest pause that covers a topic."""
        return self._of(topic)[0]

    def policy(self, topic: str) -> Policy | None:
        """Return the policy of a topic."""
        return self._of(topic)[1]

    def policy_of_all(self, match: str) -> Policy | None:
        """Return the policy that all topics of a pattern have; None if some of them may have another one."""
        first = next((one for one in self.in_order if overlap(one.match, match)), None)
        return first if first is not None and covers(first.match, match) else None

    def limit(self, topic: str) -> Limit | None:
        """Return the limit of a topic until nothing of it is held."""
        return self._of(topic)[2]

    def waits(self, held: Mapping[str, int]) -> dict[str, float]:
        """Return how long (s) the held messages of each bucket take at its rate; infinite without a rate.

        Paused messages do not wait for a limit.
        """
        waits: dict[str, float] = {}
        for topic, count in held.items():
            bucket, policy = self.bucket(topic), self.policy(topic)
            if self.pause(topic) is not None:
                continue
            if bucket is not None:
                waits[bucket.name] = waits.get(bucket.name, 0) + count / bucket.rate
            elif policy is not None and policy.max_in_flight is not None:
                waits[topic] = math.inf
        return waits

    def bucket(self, topic: str) -> Bucket | None:
        """Return the bucket of a topic, if its rate is limited: the slower one of a policy and a limit."""
        return self._of(topic)[3]

    def slots(self, topic: str) -> Slots | None:
        """Return the slots of a topic, if its sends at a time are limited."""
        return self._of(topic)[4]

    def _of(self, topic: str) -> _Found:
        try:
            return self._known[topic]
        except KeyError:
            pass
        policy, limit = _first(self._policies, topic), _first(self._limits, topic)
        found = _first(self._pauses, topic), policy, limit, _bucket(topic, policy, limit), _slots(topic, policy)
        return self._known.keep(topic, found)


def number_of(version: str) -> int:
    """Return the number in a version; 0 if nothing was ever set."""
    return int(version[:10] or 0)


def may_be_lost(known: str, version: str) -> bool:
    """Return whether the policies of this version may have lost the change that made the `known` one.

    They may, unless the number of their version is greater: a Redis that lost a change uses its number again.
    """
    return known != version and known[:10] >= version[:10]


def _bucket(topic: str, policy: Policy | None, limit: Limit | None) -> Bucket | None:
    # No topic contains a '/'.
    found = []
    if policy is not None and policy.rate:
        name = topic if policy.per == "topic" else f"policy/{policy.name}"
        found.append(Bucket.of_topics(name, policy.rate, policy.burst or math.ceil(policy.rate)))
    if limit is not None and limit.rate:
        found.append(limit.bucket)
    return min(found, key=lambda one: one.rate, default=None)


def _slots(topic: str, policy: Policy | None) -> Slots | None:
    if policy is None or policy.max_in_flight is None:
        return None
    return Slots(topic if policy.per == "topic" else f"policy/{policy.name}", policy.max_in_flight)


def _first(known: list[tuple[re.Pattern[str], T]], topic: str) -> T | None:
    return next((one for pattern, one in known if pattern.match(topic)), None)


_KINDS: Final[dict[str, Any]] = {"pause": Pause, "policy": Policy, "limit": Limit}
#: It is empty: for a topic without a policy.
NO_POLICY: Final = Policy()
#: For a Redis where nothing was ever set.
NO_POLICIES: Final = Policies()
