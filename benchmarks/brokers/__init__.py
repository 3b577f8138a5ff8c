"""Brokers to compare with: their own Python clients alone.

The module of a broker is also a program. With a URL and a COUNT it sends with the broker's own client and prints the seconds.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from benchmarks.load.messages import DAY, make, spread

#: The brokers with a kit, in the order of their measurement.
NAMES: Final = ("kafka", "rocketmq", "rabbitmq")


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


class Kit(Protocol):
    """The operations of a benchmark on one kind of broker."""

    #: The number of messages: in full, and quick.
    messages: int
    quick: int

    def running(self, topics: Sequence[str]) -> AbstractContextManager[str]:
        """Start a fresh broker with these topics, and return the URL of delayq's target."""

    def alone(self, url: str, messages: Sequence[Plain]) -> float:
        """Send the messages with the broker's own client in its fastest way; return the seconds.

        The promise is the same as delayq's. Each message gets the broker's form in the same way as in delayq's target, and
        the broker's reply to each is checked.
        """


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
    """Send with the broker's own client, and print the seconds."""
    url, count = sys.argv[1:]
    print(kit.alone(url, list(plain(int(count)))))
