"""The errors that delayq raises. A class's docstring is the message of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

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
    "PastDue",
    "PoliciesChanged",
    "StillDue",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "TooManyPending",
    "TooManyPolicies",
]


class DelayqError(Exception):
    """Anything that delayq raises by itself.

    DelayqError
    ├── InvalidMessage      a field of a message (or of a request) is wrong
    ├── Conflict            the id is taken by another message, or was cancelled
    ├── PastDue             its time had passed, and the caller did not want it then
    ├── TooManyPending      its topic has as many messages as a policy lets it have
    ├── TooManyPolicies     there are as many pauses or policies as there may be
    ├── PoliciesChanged     the policies have not the version that the caller has seen
    ├── NotAllowed          the API key is missing, unknown, or has no right to it
    ├── NotReady            a worker is too old for it
    ├── NotDevelopment      the time of this server cannot be moved
    ├── StillDue            time was moved, and something that is due was not delivered
    ├── ConfigError         a setting is wrong
    │   └── MissingExtra    a package that an option needs is not installed
    ├── LayoutMismatch      this process and the Redis disagree about the layout
    └── StoreError          Redis answered with an error
        ├── StoreUnavailable   Redis is unreachable, or its reply was lost
        │   ├── NotDone        nothing was done
        │   └── NotDurable     not known to be where it was asked to be kept
        ├── StoreFull          Redis has no memory left
        └── StoreRefused       Redis refused the user, the password or a command: nothing was done
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Make pickle and copy keep every attribute, whatever arguments `__init__` takes.

        Without this a process pool that gets an InvalidMessage from a worker hangs for ever.
        """
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[DelayqError], args: tuple[Any, ...], attributes: dict[str, Any]) -> DelayqError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidMessage(DelayqError):
    """A field is wrong. `field` is its name in the HTTP API, `reason` says what is wrong and how to mend it."""

    def __init__(self, field: str, reason: str, *, too_large: bool = False) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
        self.too_large = too_large


_WHY_TAKEN: Final = {
    "": "belongs to a message with other content; use another id, or cancel that one first",
    "delivered": "belonged to a message with other content, which was delivered; use another id",
    "cancelled": "was cancelled; schedule the message under another id, or with again",
    "removedInFlight": "was cancelled when it may have been delivered; schedule the message under another id",
    "discarded": "was deleted as a dead letter; schedule the message under another id",
}


class Conflict(DelayqError):
    """The id is taken by another message, or was cancelled or discarded. Nothing was scheduled.

    `state` says how the message of this id ended, '' if it has not.
    """

    def __init__(self, id: str, state: str = "") -> None:
        self.reason = _WHY_TAKEN[state]
        super().__init__(f"id {id} {self.reason}")
        self.id = id
        self.state = state

    @property
    def removed(self) -> bool:
        """Whether somebody did not want it any more: it was cancelled or discarded."""
        return self.state not in ("", "delivered")


class PastDue(DelayqError):
    """Its time had passed, and the caller did not want it then. Nothing was scheduled."""

    def __init__(self, id: str) -> None:
        super().__init__(f"id {id}: its due has passed")
        self.id = id


class TooManyPending(DelayqError):
    """A policy lets this topic have only so many messages, dead letters included. Nothing was scheduled."""

    def __init__(self, id: str, topic: str, pending: int) -> None:
        super().__init__(f"at most {pending:,} messages of the topic {topic} may be waiting or be dead letters")
        self.id = id
        self.topic = topic


_REMEDIES: Final = {
    "pause": (
        "pauses",
        "resume one that is not needed (a resume with a rate counts until it is over), or pause by a pattern that covers several "
        "topics",
    ),
    "policy": ("policies", "delete one that is not needed, or write one whose pattern covers several topics"),
}


class TooManyPolicies(DelayqError):
    """There are as many pauses or policies as there may be. Nothing was done.

    `kind` is 'pause' or 'policy', `most` the bound, and `of_key` whether it is the bound on the topics of one API key.
    """

    def __init__(self, kind: str, most: int, of_key: bool) -> None:
        many, remedy = _REMEDIES[kind]
        where = "on the topics of this API key" if of_key else "in all"
        super().__init__(f"there are {most:,} {many} {where}, and no more are allowed: {remedy}; nothing was done")
        self.kind = kind
        self.most = most
        self.of_key = of_key


class PoliciesChanged(DelayqError):
    """The policies have not the version that the caller has seen. Nothing was done."""


class NotDevelopment(DelayqError):
    """The time of this server cannot be moved, as it is not a development server. Nothing was done."""


class StillDue(DelayqError):
    """The time of a development server was moved, and messages that are due were neither delivered nor refused in time.

    `due` is how many queues have such messages, and `behind` names the workers that have not followed.
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
    """A worker is too old for it. Nothing was done."""


class ConfigError(DelayqError):
    """A setting is wrong."""


class MissingExtra(ConfigError):
    """A package that an option needs is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra [{extra}]: pip install 'delayq[{extra}]'")
        self.extra = extra


class LayoutMismatch(DelayqError):
    """This process and the Redis disagree about the number of queues or the layout version."""


class StoreError(DelayqError):
    """Redis answered with an error that delayq does not expect."""

    #: Of a schedule: the message's id, made before the call, so that it can be repeated.
    id: str | None = None

    def about(self, id: str) -> Self:
        """The same error, for the message of this id."""
        error = type(self)(*self.args)
        error.id = id
        return error


class StoreUnavailable(StoreError):
    """Redis is unreachable, or its reply was lost: the outcome is unknown, and repeating the same call is safe.

    A change that was not made by now is not made later, either: Redis refuses it then.
    """


class NotDone(StoreUnavailable):
    """Redis is unreachable, or refused the call: nothing was done, and repeating the same call is safe."""


class NotDurable(StoreUnavailable):
    """Redis took it, but did not confirm that it is kept as DELAYQ_MIN_REPLICAS and DELAYQ_FSYNC want it.

    The outcome is unknown, as a fail-over may lose it; repeating the same call is safe.
    """


class StoreFull(StoreError):
    """Redis has no memory left for new messages; delivery and cancelling go on."""


class StoreRefused(StoreError):
    """Redis refused the user, the password, or a command that the user may not run: nothing was done.

    Repeating the call helps only after somebody has changed the rights or the password.
    """
