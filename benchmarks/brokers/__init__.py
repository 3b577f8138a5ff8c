"""Brokers beside delayq: what their own Python clients do alone, and consumers that note when a message arrived."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from benchmarks.load.messages import DAY, make, spread

__all__ = ["NAMES", "Broker", "Kit", "Note", "Plain", "kit", "plain"]

#: The brokers with a kit, in the order in which they are measured.
NAMES: Final = ("kafka", "rocketmq", "rabbitmq")

#: Takes a message's due and the time at which the broker says it had it (both Unix ms; 0: it does not say).
Note = Callable[[int, int], None]


class Plain(msgspec.Struct, frozen=True, gc=False):
    """A message as an application has it, before it is put into the broker's form: the fields that delayq carries over."""

    id: str
    topic: str
    tags: str
    key: str
    body: bytes
    due: int
    attempt: int = 1
    content_type: str = "text/plain; charset=utf-8"


class Broker(Protocol):
    """A running broker that a benchmark started."""

    @property
    def url(self) -> str:
        """Of delayq's target."""

    def pause(self) -> None:
        """Let it say nothing."""

    def resume(self) -> None:
        """Let it go on."""


class Kit(Protocol):
    """What a benchmark does with one kind of broker."""

    #: How many messages are sent through it: in full, and for a quick look.
    messages: int
    quick: int

    def running(self, topics: Sequence[str]) -> AbstractContextManager[Broker]:
        """A fresh broker with these topics."""

    def alone(self, url: str, messages: Sequence[Plain]) -> float:
        """Seconds that the broker's own client needs to send them, the fastest way it has.

        The same messages with the same promise: each is put into the broker's form as delayq's target does it, and the
        broker's word of each is looked at.
        """

    def source(self, broker: Broker) -> str:
        """Where `read` finds the broker."""

    def read(self, source: str, topic: str, count: int, note: Note) -> None:
        """Consume `count` messages, or until no more come for a while."""


def kit(name: str) -> Kit:
    """The kit of a broker."""
    found: Kit = importlib.import_module(f"benchmarks.brokers.{name}").KIT
    return found


def plain(count: int) -> Iterator[Plain]:
    """Realistic messages, made alike each time."""
    for number, one in enumerate(make(count, spread(DAY, DAY), keys=1)):
        assert one.expect_date is not None
        yield Plain(f"{number:030d}", one.topic, one.tags, one.keys[0], str(one.body).encode(), one.expect_date)
