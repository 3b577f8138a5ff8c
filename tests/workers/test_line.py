"""A node writes its line, and takes away those of nodes that have been silent for long."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from delayq.config import load_settings
from delayq.store import commands
from delayq.store.store import Store
from delayq.testing import ManualClock
from tests.support.servers import ServerUnderTest
from workers.line import EVERY, SILENT, TIDY, Line
from workers.ownership import Ownership
from workers.skew import Skew

NOTHING = cast(Ownership, SimpleNamespace(jobs={}, since={}, handed_over=None))


@pytest.fixture
def store(valkey: ServerUnderTest) -> Iterator[Store]:
    store = Store(valkey.url)
    yield store
    store.close()


@pytest.fixture
def clock(store: Store) -> ManualClock:
    return ManualClock(store.run(commands.redis_now()))


def line(store: Store, clock: ManualClock, name: str) -> Line:
    settings = load_settings(redis_url=store.url, node=name)
    return Line(store, settings, Skew(clock), clock)


def killed(store: Store, clock: ManualClock, name: str, silent_for: int) -> None:
    """A node's line as it was left so many ms ago."""
    said = msgspec.json.encode({"node": name, "seen": clock.now() - silent_for, "queues": {}})
    store.run(commands.publish_node(name, said))


def names(store: Store) -> set[str]:
    lines = store.run(commands.nodes())
    return set(lines)


def test_a_node_that_starts_takes_away_the_lines_of_those_that_were_killed_long_ago(
    store: Store, clock: ManualClock
) -> None:
    for number in range(20):
        killed(store, clock, f"killed-{number}", 2 * SILENT)
    killed(store, clock, "killed-lately", SILENT // 2)
    line(store, clock, "one").publish(NOTHING, changed=True)
    assert names(store) == {"one", "killed-lately"}


def test_it_looks_again_once_a_minute(store: Store, clock: ManualClock) -> None:
    one = line(store, clock, "one")
    one.publish(NOTHING, changed=True)
    killed(store, clock, "killed", 2 * SILENT)
    for _ in range(TIDY // EVERY - 1):
        clock.advance(EVERY)
        one.publish(NOTHING, changed=False)
        assert names(store) == {"one", "killed"}
    clock.advance(EVERY)
    one.publish(NOTHING, changed=False)
    assert names(store) == {"one"}


def test_a_node_that_was_silent_for_long_and_lives_writes_its_line_again(store: Store, clock: ManualClock) -> None:
    paused = line(store, clock, "paused")
    paused.publish(NOTHING, changed=True)
    killed(store, clock, "paused", 2 * SILENT)
    line(store, clock, "other").publish(NOTHING, changed=True)
    assert names(store) == {"other"}
    clock.advance(EVERY)
    paused.publish(NOTHING, changed=False)
    assert names(store) == {"other", "paused"}
