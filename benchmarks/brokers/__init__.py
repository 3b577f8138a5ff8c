"""Brokers to compare with: their own Python clients alone, and consumers that record when a message arrived.

The module of a broker is also a program: `alone URL COUNT` sends with its own client and prints the seconds. `read SOURCE TOPIC
COUNT FILE` writes arrivals like the consumer of `benchmarks.load.traffic`.
"""

from __future__ import annotations

import importlib
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from benchmarks.load.messages import DAY, make, spread

__all__ = ["NAMES", "Broker", "Kit", "Note", "Plain", "kit", "main", "plain"]

#: The brokers with a kit, in the order of their measurement.
NAMES: Final = ("kafka", "rocketmq", "rabbitmq")

#: A function that records a message's due time and the time of the broker's copy (both Unix ms; 0 if unknown).
Note = Callable[[int, int], None]


class Plain(msgspec.Struct, frozen=True, gc=False):
    """A message of an application, with the fields that delayq delivers, before it is put into the broker's form."""

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
        """The URL of delayq's target."""

    def pause(self) -> None:
        """Stop its processes, so that it answers nothing."""

    def resume(self) -> None:
        """Continue its processes."""


class Kit(Protocol):
    """The operations of a benchmark on one kind of broker."""

    #: The number of messages: in full, and quick.
    messages: int
    quick: int

    def running(self, topics: Sequence[str]) -> AbstractContextManager[Broker]:
        """Start a fresh broker with these topics."""

    def alone(self, url: str, messages: Sequence[Plain]) -> float:
        """Send the messages with the broker's own client in its fastest way; return the seconds.

        The promise is the same as delayq's. Each message gets the broker's form in the same way as in delayq's target, and
        the broker's reply to each is checked.
        """

    def source(self, broker: Broker) -> str:
        """The address for `read`."""

    def read(self, source: str, topic: str, count: int, note: Note) -> None:
        """Consume `count` messages, or until no more arrive for a while."""


def kit(name: str) -> Kit:
    """The kit of a broker."""
    found: Kit = importlib.import_module(f"benchmarks.brokers.{name}").KIT
    return found


def plain(count: int) -> Iterator[Plain]:
    """Yield realistic messages, the same ones each time."""
    for number, one in enumerate(make(count, spread(DAY, DAY), keys=1)):
        assert one.expect_date is not None
        yield Plain(f"{number:030d}", one.topic, one.tags, one.keys[0], str(one.body).encode(), one.expect_date)


def main(kit: Kit) -> None:
    """Run the program of a broker."""
    actions: dict[str, Callable[..., None]] = {"alone": _alone, "read": _read}
    action, *words = sys.argv[1:]
    actions[action](kit, *words)


def _alone(kit: Kit, url: str, count: str) -> None:
    print(kit.alone(url, list(plain(int(count)))))


def _read(kit: Kit, source: str, topic: str, count: str, path: str) -> None:
    numbers: array[int] = array("q")

    def note(due: int, stamp: int) -> None:
        arrived = time.time_ns() // 1000
        numbers.extend((due, arrived, stamp or arrived // 1000))

    try:
        kit.read(source, topic, int(count), note)
    finally:
        Path(path).write_bytes(numbers.tobytes())
