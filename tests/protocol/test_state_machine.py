"""The protocol holds, whatever callers, nodes, targets and clocks do in whatever order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from delayq.embedded import EmbeddedServer
from delayq.store import scripts
from delayq.store.connect.store import Store
from reliability.mutants.rules import (
    CANCELLED_BEHIND_ITS_KEY,
    DUE_BEFORE_THE_NEXT_LOOK,
    MUTANTS,
    OF_PAUSES,
    RETRIED_BEFORE_THE_OFFSET,
    Mutant,
    Path,
    plant,
)
from tests.protocol.machine import Protocol
from tests.protocol.pausing import Pausing
from tests.support.amounts import amount
from tests.support.timeouts import PATIENCE
from workers.queue.pull import Pulling
from workers.sending.message import InFlightMessage


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with EmbeddedServer(appendonly=False) as server:
        yield server.url


@pytest.fixture
def store(server_url: str) -> Iterator[Store]:
    store = Store(server_url, timeout=PATIENCE)
    yield store
    store.close()


def of(store: Store, kind: type[Protocol]) -> type[Protocol]:
    """The machine on this store."""

    class Machine(kind):  # type: ignore[valid-type, misc]  # each class has a store of its own
        pass

    Machine.store = store
    return Machine


def run(store: Store, kind: type[Protocol], drawn: int) -> None:
    """Draw some examples from a seed."""
    run_state_machine_as_test(
        seed(drawn)(of(store, kind)),
        settings=settings(
            max_examples=15,
            derandomize=False,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
        ),
    )


SEEDS = range(1, 1 + amount(4, 40))


@pytest.mark.parametrize("drawn", SEEDS)
def test_nothing_is_lost_early_or_sent_after_a_certain_cancel(store: Store, drawn: int) -> None:
    """F3 (cancel ∥ reschedule ∥ cancel on one id): Redis runs the calls in some order, and each answer is true in it.

    F3: The state machine draws the orders of calls. Each answer is true at its place in that order.
    """
    run(store, Protocol, drawn)


@pytest.mark.parametrize("drawn", SEEDS)
def test_nothing_paused_is_handed_out_and_what_is_held_is_cancelled_for_certain(store: Store, drawn: int) -> None:
    run(store, Pausing, drawn)


def walk(store: Store, path: Path, kind: type[Protocol]) -> None:
    """Take these steps, in this order."""
    machine = of(store, kind)()
    machine.first_owner()
    for name, *given in path:
        getattr(machine, str(name))(*given)
        machine.reconcile()
        machine.whoever_sleeps_misses_nothing()
    machine.teardown()


PATHS: dict[str, tuple[Path, type[Protocol]]] = {
    "a retry before the offset": (RETRIED_BEFORE_THE_OFFSET, Protocol),
    "a cancel behind an ordering key": (CANCELLED_BEHIND_ITS_KEY, Protocol),
    "a message that is due before the next look": (DUE_BEFORE_THE_NEXT_LOOK, Protocol),
    **{mutant.name: (mutant.path, Protocol) for mutant in MUTANTS},
    **{mutant.name: (mutant.path, Pausing) for mutant in OF_PAUSES},
}


@pytest.mark.parametrize("path", PATHS, ids=lambda name: name.replace(" ", "-"))
def test_these_paths_break_no_promise(store: Store, path: str) -> None:
    walk(store, *PATHS[path])


@pytest.mark.parametrize("mutant", [*MUTANTS, *OF_PAUSES], ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_path_of_a_rule_breaks_a_promise_without_the_rule(
    mutant: Mutant, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mutant.says
    plant(mutant, monkeypatch)
    with pytest.raises(AssertionError, match=mutant.says):
        walk(store, *PATHS[mutant.name])


def test_an_owner_that_does_not_look_again_sends_a_message_after_a_cancel_removed_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InFlightMessage, "stale", lambda self, now: False)
    with pytest.raises(AssertionError, match="after a cancel removed it"):
        walk(store, CANCELLED_BEHIND_ITS_KEY, Protocol)


def test_a_wake_that_neither_pulls_nor_moves_the_next_look_leaves_a_due_message(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pulling, "rewind", lambda self, due: None)
    with pytest.raises(AssertionError, match="is due and its owner sleeps"):
        walk(store, DUE_BEFORE_THE_NEXT_LOOK, Protocol)


def test_after_a_test_of_a_mutant_the_scripts_are_what_they_were() -> None:
    changed = MUTANTS[0].changes[0][0]
    real = scripts.load(changed)
    with pytest.MonkeyPatch.context() as patch:
        plant(MUTANTS[0], patch)
        assert scripts.load(changed).sha != real.sha
    assert scripts.load(changed) == real
