"""The errors of delayq. The docstring of a class is the message of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar

__all__ = [
    "ConfigError",
    "Conflict",
    "DelayqError",
    "InvalidMessage",
    "LayoutMismatch",
    "MissingExtra",
    "NotAllowed",
    "NotDevelopment",
    "NotDone",
    "NotDurable",
    "NotReady",
    "OtherFilter",
    "PastDue",
    "PoliciesChanged",
    "StillDue",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "TooManyPending",
    "TooManyPolicies",
    "WrongRedis",
]


class DelayqError(Exception):
    """Any error that delayq raises itself.

    DelayqError
    ├── InvalidMessage      a field of a message (or of a request) is invalid
    ├── Conflict            the id belongs to another message, or was cancelled
    ├── OtherFilter         the consumer group has another filter
    ├── PastDue             its due time has passed, and the caller refuses late messages
    ├── TooManyPending      its topic has the maximum of messages of its policy
    ├── TooManyPolicies     the maximum of pauses or policies is reached
    ├── PoliciesChanged     the policies have another version than the caller has read
    ├── NotAllowed          the API key is missing, unknown, or has no right to it
    ├── NotReady            a worker is too old for the call
    ├── NotDevelopment      the time of this server cannot be moved
    ├── StillDue            time was moved, but due messages were not delivered
    ├── ConfigError         a setting is invalid
    │   └── MissingExtra    a package that an option needs is not installed
    ├── LayoutMismatch      this process and Redis disagree about the layout
    └── StoreError          Redis answered with an error
        ├── StoreUnavailable   Redis is unreachable, or its reply was lost
        │   ├── NotDone        nothing was done
        │   └── NotDurable     not confirmed to be kept as required
        ├── StoreFull          Redis has no memory left
        ├── StoreRefused       Redis refused the user, the password or a command: nothing was done
        └── WrongRedis         the URL is for another kind of Redis; also a ConfigError
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Make pickle and copy keep every attribute, whatever arguments `__init__` takes.

        Otherwise a process pool that gets an InvalidMessage from a worker would hang forever.
        """
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[DelayqError], args: tuple[Any, ...], attributes: dict[str, Any]) -> DelayqError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidMessage(DelayqError):
    """A field is invalid. `field` is its name in the HTTP API; `reason` has the mistake and the remedy."""

    def __init__(self, field: str, reason: str, *, too_large: bool = False) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
        self.too_large = too_large


_WHY_TAKEN: Final = {
    "": "belongs to a message with other content; use another id, or cancel that message first",
    "delivered": "belonged to a delivered message with other content; use another id",
    "cancelled": "was cancelled; use another id, or set 'again' to schedule it all the same",
    "removedInFlight": "was cancelled when it may have been delivered; use another id",
    "discarded": "was discarded as a dead letter; use another id",
}


class Conflict(DelayqError):
    """The id belongs to another message, or was cancelled or discarded. Nothing was scheduled.

    `state` is how the message of this id ended, '' if it has not.
    """

    def __init__(self, id: str, state: str = "") -> None:
        self.reason = _WHY_TAKEN[state]
        super().__init__(f"id {id} {self.reason}")
        self.id = id
        self.state = state

    @property
    def removed(self) -> bool:
        """Whether the id was cancelled or discarded."""
        return self.state not in ("", "delivered")


class OtherFilter(DelayqError):
    """The consumer group has another filter. Nothing was received."""

    def __init__(self, group: str, tags: tuple[str, ...]) -> None:
        theirs = f"with the filter {' || '.join(tags)}" if tags else "without a filter"
        super().__init__(f"the group {group} receives {theirs}; use the same one, or another group")
        self.group = group
        self.tags = tags


class PastDue(DelayqError):
    """The due time has passed, and the caller refuses late messages. Nothing was scheduled."""

    def __init__(self, id: str) -> None:
        super().__init__(f"id {id}: its due time has passed")
        self.id = id


class TooManyPending(DelayqError):
    """A policy bounds the messages of this topic, including dead letters. Nothing was scheduled."""

    def __init__(self, id: str, topic: str, pending: int) -> None:
        super().__init__(f"the topic {topic} has its maximum of {pending:,} waiting messages and dead letters")
        self.id = id
        self.topic = topic


_REMEDIES: Final = {
    "pause": (
        "pauses",
        "resume a pause that is not needed (a resume with a rate counts until it is over), or pause one pattern "
        "that covers several topics",
    ),
    "policy": ("policies", "delete a policy that is not needed, or use one whose pattern covers several topics"),
}


class TooManyPolicies(DelayqError):
    """The maximum number of pauses or policies is reached. Nothing was done.

    `kind` is 'pause' or 'policy', `most` the maximum, and `of_key` whether it is the maximum of one API key.
    """

    def __init__(self, kind: str, most: int, of_key: bool) -> None:
        many, remedy = _REMEDIES[kind]
        where = "on the topics of this API key" if of_key else "in all"
        super().__init__(f"there are {most:,} {many} {where}, the maximum, so nothing was done; {remedy}")
        self.kind = kind
        self.most = most
        self.of_key = of_key


class PoliciesChanged(DelayqError):
    """The policies have another version than the caller has read. Nothing was done."""


class NotDevelopment(DelayqError):
    """The time of this server cannot be moved, because it is not a development server. Nothing was done."""


class StillDue(DelayqError):
    """The time of a development server was moved, but due messages were neither delivered nor refused in time.

    `due` is the number of queues with such messages, and `behind` names the workers that have not followed.
    """

    def __init__(self, due: int, behind: Sequence[str]) -> None:
        reasons = [f"workers have not followed: {', '.join(behind)}"] if behind else []
        if due:
            reasons.append(f"{due} queues have messages that are due and not delivered")
        super().__init__("; ".join(reasons) or "no worker runs")
        self.due = due
        self.behind = list(behind)


class NotAllowed(DelayqError):
    """The API key is missing, unknown, or does not allow the call. Nothing was done."""


class NotReady(DelayqError):
    """A worker is too old for the call. Nothing was done."""


class ConfigError(DelayqError):
    """A setting is invalid."""


class MissingExtra(ConfigError):
    """An option needs a package that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra [{extra}]: pip install 'delayq[{extra}]'")
        self.extra = extra


class LayoutMismatch(DelayqError):
    """This process and Redis disagree about the number of queues or the layout version."""


class StoreError(DelayqError):
    """Redis answered with an error that delayq does not expect."""

    #: The id of the message of a schedule call. It is made before the call, so that the call can be repeated.
    id: str | None = None

    def about(self, id: str) -> Self:
        """Return the same error, for the message of this id."""
        error = type(self)(*self.args)
        error.id = id
        return error


class StoreUnavailable(StoreError):
    """Redis is unreachable, or its reply was lost: the outcome is unknown, and repeating the same call is safe.

    A change that was not made when this is raised is not made later either: Redis refuses it then.
    """


class NotDone(StoreUnavailable):
    """Redis is unreachable, or refused the call: nothing was done, and repeating the same call is safe."""


class NotDurable(StoreUnavailable):
    """Redis has the change, but did not confirm that it is kept as DELAYQ_MIN_REPLICAS and DELAYQ_FSYNC require.

    The outcome is unknown, because a fail-over may lose it. Repeating the same call is safe.
    """


class StoreFull(StoreError):
    """Redis has no memory left for new messages. Deliveries and cancels continue."""


class StoreRefused(StoreError):
    """Redis refused the user, the password, or a command that the user may not run. Nothing was done.

    Repeating the call helps only after the rights or the password were changed.
    """


class WrongRedis(StoreError, ConfigError):
    """The URL is for another kind of Redis than the server: a single server, Sentinels or a Cluster. Nothing was done."""


T = TypeVar("T")


def only(outcomes: Sequence[T | DelayqError]) -> T:
    """Return the single outcome of a call. Raises it if it is an error."""
    (outcome,) = outcomes
    if isinstance(outcome, DelayqError):
        raise outcome
    return outcome
