"""Where messages go: the `Target` protocol, and `open_target`, which finds the target that a URL names.

A target is a class or function `(url, route, redis_url) -> Target`, named by its URL's scheme in the entry points of
the group `delayq.targets`. Each kind has a check, `(route) -> Check` (delayq.domain.routes), for messages that it can never
accept. It has an entry point of the group `delayq.checks`, and works without the packages of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final, Protocol

import msgspec

from delayq.base.errors import ConfigError
from delayq.base.urls import split_url
from delayq.domain.routes import CheckFactory, Route, register_check

__all__ = ["LONGEST_AFTER", "OK", "Delivery", "Result", "Target", "TargetFactory", "open_target", "register_target"]

#: The longest pause that a target may ask for, ms.
LONGEST_AFTER: Final = 600_000


class Result(msgspec.Struct, frozen=True):
    """The outcome of one message: 'ok', 'rejected' (this message's fault), 'unavailable', 'full' or 'unknown'.

    `reason` is for people, in the broker's words. `after` is the pause in ms that the target requests. The message is not
    sent again before its end, and neither is a probe of an open circuit. More than `LONGEST_AFTER` counts as that.
    """

    outcome: str
    reason: str = ""
    after: int = 0

    @staticmethod
    def rejected(reason: str) -> Result:
        """The message itself is at fault: it is buried at once."""
        return Result("rejected", reason)

    @staticmethod
    def unavailable(reason: str, after: int = 0) -> Result:
        """The target did not accept it: the message is retried."""
        return Result("unavailable", reason, min(after, LONGEST_AFTER))

    @staticmethod
    def full(reason: str, after: int = 0) -> Result:
        """The target accepts no messages now: its messages wait, without a failed attempt."""
        return Result("full", reason, min(after, LONGEST_AFTER))

    @staticmethod
    def unknown(reason: str, after: int = 0) -> Result:
        """It may have arrived: the message is retried, and may arrive twice."""
        return Result("unknown", reason, min(after, LONGEST_AFTER))


OK: Final = Result("ok")


class Delivery(Protocol):
    """A message in a send: the facts that a target may pass on."""

    @property
    def id(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def tags(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def ordering_key(self) -> str: ...
    @property
    def payload(self) -> bytes:
        """The body: a string as UTF-8, bytes as they are, other JSON as compact text."""

    @property
    def content_type(self) -> str:
        """The payload's media type: application/json, text/plain or, for bytes, application/octet-stream."""

    @property
    def due(self) -> int:
        """The asked due time, Unix ms."""

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""


class Target(Protocol):
    """A kind of destination. It sends batches, returns the outcome of each message, and does not retry by itself."""

    @property
    def max_batch(self) -> int:
        """The maximum number of messages of a batch."""

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Send a batch within `timeout` seconds; a result per message, in order. An exception means 'unknown'.

        Nothing is written after these, also if the process stalled meanwhile: a pause depends on that.
        Called from several threads at once. A batch holds at most one message of an ordering key.
        """

    def close(self) -> None:
        """Flush, and close."""


TargetFactory = Callable[[str, Route, str], Target]

_registered: dict[str, TargetFactory] = {}


def register_target(scheme: str, factory: TargetFactory, check: CheckFactory | None = None) -> None:
    """Register a target and its check in this process without entry points."""
    _registered[scheme] = factory
    if check is not None:
        register_check(scheme, check)


def open_target(route: Route, redis_url: str) -> Target:
    """Open the target that the route names. Raises ConfigError (MissingExtra if a package is not installed)."""
    scheme = split_url(route.target).scheme
    factory = _registered.get(scheme)
    if factory is None:
        found = entry_points(group="delayq.targets")
        if scheme not in found.names:
            known = ", ".join(sorted({*found.names, *_registered}))
            raise ConfigError(f"route {route.name}: unknown kind of target {scheme}:; known are {known}")
        factory = found[scheme].load()
    return factory(route.target, route, redis_url)
