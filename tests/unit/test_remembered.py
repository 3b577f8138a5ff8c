"""What is remembered by texts that callers choose is bounded in bytes, whatever they choose."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from api.auth.caller import Caller
from api.auth.keys_file import Door
from delayq.base.remembered import Remembered
from delayq.client.known_routes import KnownRoutes
from delayq.config import load_settings
from delayq.domain.policies import Policies
from delayq.domain.routes import Route, Routes
from delayq.testing import ManualClock
from tests.support.keys import KeyFile

LONG = 30_000
CALLS = 300


def test_it_forgets_when_it_is_full_and_never_keeps_a_long_key() -> None:
    known: Remembered[str, int] = Remembered(2, longest=3)
    assert [known.keep(key, len(key)) for key in ("a", "bb", "four", "ccc")] == [1, 2, 4, 3]
    assert known == {"ccc": 3}


def with_blanks(folder: Path) -> Callable[[int], object]:
    file = KeyFile(folder / "keys.yaml")
    file.add("shop")
    door = Door(load_settings(api_keys=str(file.path)), ManualClock())

    def come(number: int) -> object:
        header = b"Bearer " + b" " * (LONG + number) + file.texts["shop"].encode()
        return door.enter({"headers": [(b"authorization", header)], "client": ("10.0.0.1", 1)}, "/v1/queues")

    return come


def by_names(_folder: Path) -> Callable[[int], object]:
    door = Door(load_settings(), ManualClock())
    return lambda number: door.guest({"headers": [(b"host", b"localhost:" + b"0" * LONG + b"%d" % number)]})


def as_a_caller(folder: Path) -> Callable[[int], object]:
    file = KeyFile(folder / "keys.yaml")
    file.add("shop")
    caller = Caller(file.keys[0])
    return lambda number: caller.on("t" * LONG + str(number))


def by_routes(_folder: Path) -> Callable[[int], object]:
    routes = Routes([Route(name="all", match="*", target="log:")])
    return lambda number: routes.look("t" * LONG + str(number))


def by_policies(_folder: Path) -> Callable[[int], object]:
    policies = Policies()
    return lambda number: policies.bucket("t" * LONG + str(number))


def by_known_routes(_folder: Path) -> Callable[[int], object]:
    known = KnownRoutes(Routes([Route(name="all", match="*", target="log:")]), ManualClock())
    return lambda number: known.refuses("t" * LONG + str(number))


@pytest.mark.parametrize("make", [with_blanks, by_names, as_a_caller, by_routes, by_policies, by_known_routes])
def test_long_texts_of_callers_take_no_memory(make: Callable[[Path], Callable[[int], object]], tmp_path: Path) -> None:
    once = make(tmp_path)
    once(0)
    tracemalloc.start()
    try:
        for number in range(CALLS):
            once(number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < CALLS * LONG / 10
