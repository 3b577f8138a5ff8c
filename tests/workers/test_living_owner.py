"""An owner that lives on forgets nothing for good, whatever befalls it: no restart, no new claim."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.servers import ServerUnderTest
from tests.workers.living import live
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import ParkedSets
from workers.queue.tenure import Incarnation

SEEDS = int(os.environ.get("DELAYQ_TEST_SEEDS", "50"))
#: Lives in which a mutant is looked for when the seeds that are known to show it show it no more.
FURTHER = 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_ends_and_in_order_with_one_owner_that_lives_on(valkey: ServerUnderTest, seed: int) -> None:
    live(valkey.url, seed)


# -- rules taken out -----------------------------------------------------------------------------------------------------

_reset = InFlight.reset


def _forget_parked_sets(self: InFlight) -> None:
    self._parked.__init__()  # type: ignore[misc]  # as if it were new
    _reset(self)


def _stay_where_it_is(self: InFlight, name: str, answer: Any) -> None:
    self._parked.told(name, answer)


def _believe_the_answer_alone(self: InFlight, name: str, answer: Any) -> None:
    if (due := self._parked.told(name, answer)) is not None:
        self.rewind(due)


#: What is replaced by what; and seeds that show it.
MUTANTS: dict[str, tuple[type, str, Callable[..., object], tuple[int, ...]]] = {
    "a reset that forgets what was parked": (InFlight, "reset", _forget_parked_sets, (1, 46, 31)),
    "parked sets that are never found again": (ParkedSets, "found", lambda self, names, pending=(): None, (15, 35, 55)),
    "an offset that does not go back to what has left a set": (InFlight, "observe_set", _stay_where_it_is, (1, 29, 55)),
    "a set that is known by its answer alone": (InFlight, "observe_set", _believe_the_answer_alone, (88, 296, 96, 142)),
    "parking without a note": (ParkedSets, "expect", lambda self, name, place: None, (30, 38, 42)),
    "missing tickets that are not looked for": (InFlight, "misses", lambda self, place, start: False, (10, 66, 98)),
    "one incarnation for ever": (Incarnation, "go_on", lambda self: setattr(self, "name", self.epoch), (50, 53, 7)),
}


def _search(url: str, seeds: tuple[int, ...]) -> None:
    """Where it shows at once, then in so many other lives."""
    for seed in (*seeds, *range(FURTHER)):
        live(url, seed)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_random_life_fails_without_a_rule(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    where, name, instead, seeds = MUTANTS[mutant]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        _search(valkey.url, seeds)
