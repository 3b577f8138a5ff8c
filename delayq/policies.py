"""Policies and pauses of topics: what can be changed while everything runs, for all topics that a pattern covers.

They stand in Redis under one version for all of them, which every queue has too: a pull that names another one takes
nothing. Times are Unix ms, durations ms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar

import msgspec

from delayq.errors import InvalidMessage
from delayq.message import MAX_WINDOW, Limits, given_duration
from delayq.patterns import check_pattern, compiled
from delayq.remembered import Remembered
from delayq.times import Duration, check_unix_ms

__all__ = [
    "NO_POLICIES",
    "NO_POLICY",
    "Bucket",
    "Limit",
    "Pause",
    "Policies",
    "Policy",
    "Slots",
    "check_policy_name",
    "may_be_lost",
    "number_of",
]

#: So many topics of which it is remembered what they are covered by.
REMEMBERED: Final = 10_000
#: Messages a second below which a limit is as good as a pause.
LEAST_RATE: Final = 0.01
MOST: Final = 10**12
LONGEST_REASON: Final = 200
MOST_STEPS: Final = 64
MOST_PATHS: Final = 100
#: Bytes of a policy, as it stands in Redis: all workers and clients read all of them.
LONGEST_TEXT: Final = 4_096

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}")  # URLs fold a segment that is one dot or two
_PATH: Final = re.compile(r"\$(?:\.[A-Za-z0-9_-]+|\[(?:\d{1,6}|\*)\])+")

Ms = Annotated[int, msgspec.Meta(description="ms")]
T = TypeVar("T")
#: What the fields of a type are, in words.
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
    Literal["topic", "policy"]: "'topic' or 'policy'",
}
_Found = tuple["Pause | None", "Policy | None", "Limit | None", "Bucket | None", "Slots | None"]


class _Set(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What stands in a field of the hash. `match` covers topics, with `*` and `?`; `since` is when it was set; `stored` is
    its text, by which a change of it can be made only if it is still there."""

    match: str = ""
    since: int = 0
    stored: str = ""

    @property
    def field(self) -> str:
        """Where it stands."""
        return f"{type(self).__name__.lower()}:{self.match}"

    @property
    def text(self) -> str:
        """What stands there: the same text for the same."""
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
                raise InvalidMessage(field.encode_name, f"is {_SAID[field.type]}, not {value!r:.100}") from None


class Pause(_Set, frozen=True, kw_only=True):
    """Nothing of the topics is handed out, until it is taken away or `until` has passed by the clock of Redis."""

    reason: str = ""
    until: Ms | None = None

    def check(self, limits: Limits, now: int) -> None:
        """Raise InvalidMessage for the first field that is wrong; `now` is Redis's time (Unix ms)."""
        self._check_types()
        check_pattern(self.match)
        if len(self.reason) > LONGEST_REASON or _CONTROL.search(self.reason):
            raise InvalidMessage("reason", f"at most {LONGEST_REASON} characters, on one line")
        if self.until is not None and self.until <= now:
            try:
                check_unix_ms(self.until)
            except ValueError as error:  # it is in seconds, perhaps
                raise InvalidMessage("until", str(error)) from None
            raise InvalidMessage("until", "has passed; leave it out for a pause that ends when it is resumed")
        if self.until is not None and self.until > now + limits.horizon:
            raise InvalidMessage("until", "lies too far ahead; leave it out for a pause that ends when it is resumed")


class Limit(_Set, frozen=True, kw_only=True):
    """After a pause: so many messages a second, until nothing is held any more."""

    rate: float = 0.0

    @property
    def bucket(self) -> Bucket:
        """What the messages of all its topics are spent from."""
        return Bucket.of_topics(f"limit/{self.match}", self.rate, math.ceil(self.rate))

    def _bare(self) -> Self:
        return msgspec.structs.replace(self, match="", since=0, stored="", rate=float(self.rate))

    def check(self) -> None:
        """Raise InvalidMessage for the first field that is wrong."""
        self._check_types()
        check_pattern(self.match)
        _check_range("rate", self.rate, 1, MOST)


class Policy(_Set, frozen=True, kw_only=True):
    """What holds for the topics. Of several that cover a topic the first by `order` and `name` counts, whole.

    `rate` is messages a second, and `burst` how many at once; `per` 'topic' means each has its own. `max_in_flight` are
    sent at a time. `window` spreads what is scheduled. `pending` bounds how many wait, `index` is counted exactly, `redact`
    are parts of bodies that nobody is shown. `min_replicas` and `fsync` are what a call that schedules waits for.
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
    expire_after: Ms | None = None
    pending: int | None = None
    index: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    min_replicas: int | None = None
    fsync: str | None = None

    if TYPE_CHECKING:  # what may be given is more than what the fields are then

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
            expire_after: Duration | None = None,
            pending: int | None = None,
            index: tuple[str, ...] = (),
            redact: tuple[str, ...] = (),
            min_replicas: int | None = None,
            fsync: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, field in (("window", "window"), ("expire_after", "expireAfter")):
            value: Any = getattr(self, name)
            if isinstance(value, str | timedelta):
                msgspec.structs.force_setattr(self, name, given_duration(field, value))
        waits: Any = self.backoff
        if isinstance(waits, list | tuple) and any(isinstance(one, str | timedelta) for one in waits):
            msgspec.structs.force_setattr(self, "backoff", tuple(given_duration("backoff", one) for one in waits))

    @property
    def field(self) -> str:
        """Where it stands."""
        return f"policy:{self.name}"

    @property
    def for_workers(self) -> bool:
        """Whether it says anything that workers act on; the rest is for those who schedule, or look."""
        return any((self.rate, self.max_in_flight, self.max_attempts, self.backoff))

    def _bare(self) -> Self:
        rate = None if self.rate is None else float(self.rate)
        lists = {name: tuple(getattr(self, name)) for name in ("backoff", "index", "redact")}
        return msgspec.structs.replace(self, name="", since=0, stored="", rate=rate, **lists)

    def check(self, limits: Limits) -> None:
        """Raise InvalidMessage for the first field that is wrong."""
        self._check_types()
        check_policy_name(self.name)
        check_pattern(self.match)
        _check_range("order", self.order, 0, 1_000_000)
        if self.rate == 0:
            raise InvalidMessage("rate", "with 0 nothing would go out: pause the topics")
        _check_range("rate", self.rate, LEAST_RATE, MOST)
        _check_range("burst", self.burst, 1, MOST)
        if self.burst is not None and self.rate is None:
            raise InvalidMessage("burst", "goes with a rate")
        _check_range("maxInFlight", self.max_in_flight, 1, 1_000_000)
        _check_range("window", self.window, 1, MAX_WINDOW)
        _check_range("maxAttempts", self.max_attempts, 1, limits.max_attempts)
        if len(self.backoff) > MOST_STEPS:
            raise InvalidMessage("backoff", f"at most {MOST_STEPS} waits; the last one is used again and again")
        for wait in self.backoff:
            _check_range("backoff", wait, 1, limits.horizon)
        _check_range("expireAfter", self.expire_after, 0, limits.horizon)
        _check_range("pending", self.pending, 1, MOST)
        if not set(self.index) <= {"topic", "tags"} or len(set(self.index)) < len(self.index):
            raise InvalidMessage("index", "some of 'topic' and 'tags', each once")
        if len(self.redact) > MOST_PATHS or not all(_PATH.fullmatch(one) and len(one) <= 255 for one in self.redact):
            raise InvalidMessage("redact", f"at most {MOST_PATHS} JSON paths such as '$.card' or '$.items[*].name'")
        _check_range("minReplicas", self.min_replicas, 0, 100)
        if self.fsync not in (None, "everysec", "always"):
            raise InvalidMessage("fsync", "is 'everysec' or 'always'")
        if (size := len(self.text)) > LONGEST_TEXT:
            raise InvalidMessage("redact", f"the policy takes {size:,} bytes, and at most {LONGEST_TEXT:,} are allowed")
        if self.text == Policy(match=self.match, order=self.order, per=self.per).text:
            raise InvalidMessage("rate", "the policy says nothing; give it a rate, a window, or another of its fields")


def check_policy_name(value: object) -> str:
    """The name of a policy itself, or InvalidMessage."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidMessage("name", "1 to 64 characters of A-Z a-z 0-9 . _ -, not '.' or '..'")
    return value


def _check_range(field: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidMessage(field, f"lies between {least} and {most}; {value} does not")


class Bucket(msgspec.Struct, frozen=True):
    """`rate` messages a second, and `burst` at once, that all share who have the bucket of this name."""

    name: str
    rate: float
    burst: int

    @classmethod
    def of_topics(cls, name: str, rate: float, burst: int) -> Self:
        """The bucket of a topic, or of all topics of a policy or a limit: no job that has a rate uses one of these."""
        return cls(f"t:{name}", rate, burst)

    def is_of(self, topic: str) -> bool:
        """Whether the topic has the bucket for itself."""
        return self.name == f"t:{topic}"


class Slots(msgspec.Struct, frozen=True):
    """`most` messages sent at a time, of all that share the slots of this name."""

    name: str
    most: int


class Policies:
    """All of them as they stood under one `version`; nothing here changes."""

    def __init__(
        self,
        version: str = "",
        pauses: Mapping[str, Pause] | None = None,
        policies: Mapping[str, Policy] | None = None,
        limits: Mapping[str, Limit] | None = None,
        changed: int = 0,
    ) -> None:
        self.version = version
        self.changed = changed  # when there was this version first, Unix ms
        self.pauses = dict(pauses or {})  # by pattern
        self.policies = dict(policies or {})  # by name
        self.limits = dict(limits or {})  # by pattern
        #: As they count: of several that cover a topic the first.
        self.by_age = sorted(self.pauses.values(), key=lambda one: (one.since, one.match))
        self.in_order = sorted(self.policies.values(), key=lambda one: (one.order, one.name))
        self._pauses = [(compiled(one.match), one) for one in self.by_age]
        self._policies = [(compiled(one.match), one) for one in self.in_order]
        self._limits = [(compiled(one.match), one) for one in self.limits.values()]
        #: Whether anything takes slots; and whether anything is limited.
        self.slotted = any(one.max_in_flight for one in self.policies.values())
        self.limited = self.slotted or bool(self.limits) or any(one.rate for one in self.policies.values())
        self._known: Remembered[str, _Found] = Remembered(REMEMBERED)

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> Policies:
        """From what stands in Redis. A pause that cannot be read is one without an end; other things are left out."""
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
        """The version as callers see it: it only counts."""
        return number_of(self.version)

    @property
    def paused(self) -> tuple[str, ...]:
        """The patterns of the topics that are paused."""
        return tuple(sorted(self.pauses))

    def pause(self, topic: str) -> Pause | None:
        """The oldest pause that covers a topic."""
        return self._of(topic)[0]

    def policy(self, topic: str) -> Policy | None:
        """The policy of a topic."""
        return self._of(topic)[1]

    def limit(self, topic: str) -> Limit | None:
        """What bounds a topic until nothing of it is held."""
        return self._of(topic)[2]

    def waits(self, held: Mapping[str, int]) -> dict[str, float]:
        """How long (s) what a limit holds takes at its rate, of each bucket; infinite where no rate says so. What is paused does
        not wait for a limit."""
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
        """What the messages of a topic are spent from, if its rate is limited: where a policy and a limit are, the slower."""
        return self._of(topic)[3]

    def slots(self, topic: str) -> Slots | None:
        """What the messages of a topic take one of while they are sent, if only so many are at a time."""
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
    """The number in a version; 0 in that of a Redis where nobody has set anything."""
    return int(version[:10] or 0)


def may_be_lost(known: str, version: str) -> bool:
    """Whether the policies, which have this version, may have lost the change that made the `known` one.

    So it is unless the number of their version is greater: a Redis that lost a change gives its number again.
    """
    return known != version and known[:10] >= version[:10]


def _bucket(topic: str, policy: Policy | None, limit: Limit | None) -> Bucket | None:
    # No topic has a '/'.
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
#: It says nothing: for a topic that has none.
NO_POLICY: Final = Policy()
#: Of a Redis where nobody has set anything.
NO_POLICIES: Final = Policies()
