"""The protocol holds, whatever callers, nodes, targets and clocks do in whatever order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from delayq.embedded import EmbeddedServer
from delayq.store.connect.store import Store
from tests.protocol.machine import Protocol
from tests.protocol.mutants import MUTANTS, OF_PAUSES, Mutant, plant
from tests.protocol.pausing import Pausing
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


def run(store: Store, examples: int, shrink: bool = True, kind: type[Protocol] = Protocol) -> None:
    """So many examples."""

    class Machine(kind):  # type: ignore[valid-type, misc]  # a class of its own has a store of its own
        pass

    Machine.store = store
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        ),
    )


def test_nothing_is_lost_early_or_sent_after_a_certain_cancel(store: Store) -> None:
    run(store, examples=int(os.environ.get("DELAYQ_TEST_EXAMPLES", "150")))


def test_nothing_paused_is_handed_out_and_what_is_held_is_cancelled_for_certain(store: Store) -> None:
    run(store, examples=int(os.environ.get("DELAYQ_TEST_EXAMPLES", "150")), kind=Pausing)


def walk(store: Store, path: Callable[[Any], Iterable[Callable[[], object]]], kind: type[Protocol] = Protocol) -> None:
    """These steps, in this order."""

    class Machine(kind):  # type: ignore[valid-type, misc]
        pass

    Machine.store = store
    machine = Machine()
    for step in path(machine):
        step()
        machine.reconcile()
        machine.whoever_sleeps_misses_nothing()
    machine.teardown()


def a_retry_falls_before_the_offset(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.cancel_and_use_the_id_again, "a"),
        partial(machine.the_clock_of_a_node_steps, 0, -20),
        machine.everything_arrives_but_nobody_hears_of_it,
        partial(machine.cancel_and_use_the_id_again, "a"),
        partial(machine.the_clock_of_redis_steps, 3_600_000),  # it is pulled, with a due that is ahead again
        machine.everything_arrives_but_nobody_hears_of_it,
    )


def an_id_is_used_again_while_it_is_sent(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 1, False),
        partial(machine.time_passes, 20),
        partial(machine.tick, 0),
        partial(machine.tick, 0),
        partial(machine.cancel_and_use_the_id_again, "a"),
        partial(machine.send_ends, 0, 0, "ok"),
        partial(machine.tick, 0),
    )


def one_that_waits_behind_its_key_is_cancelled(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "d.00aa", 1, False),
        partial(machine.schedule, "e.00aa", 2, False),
        partial(machine.time_passes, 20),
        partial(machine.tick, 0),
        partial(machine.tick, 0),
        partial(machine.cancel, "e.00aa"),
        partial(machine.time_passes, 1_000),
        partial(machine.send_ends, 0, 0, "ok"),
        partial(machine.tick, 0),
        partial(machine.tick, 0),
    )


def two_clocks_were_far_ahead(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 3_000_000, False),
        machine.both_clocks_are_far_ahead_for_a_while,
        partial(machine.tick, 0),
        partial(machine.cancel, "a"),
    )


def one_is_due_before_what_the_owner_sleeps_for(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 20, False),
        partial(machine.tick, 0),
        partial(machine.schedule, "b", 10, False),
        partial(machine.tick, 0),  # which only moves the moment of the next look
        partial(machine.time_passes, 10),
    )


def one_that_was_pulled_is_cancelled_when_redis_has_its_time_again(
    machine: Protocol,
) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 20, False),
        *[partial(machine.the_clock_of_redis_steps, 3_600_000)] * 2,  # the first time the owner learns the topic
        partial(machine.cancel, "a"),
    )


def one_comes_behind_a_head_that_is_in_flight(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 0, False),
        *[partial(machine.tick, 0)] * 2,
        partial(machine.schedule, "b", 1, False),
        partial(machine.time_passes, 1),
    )


def a_dead_letter_is_redriven_and_cancelled(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 20, False),
        machine.everything_arrives_but_nobody_hears_of_it,
        partial(machine.redrive, "a", 20),
        partial(machine.cancel, "a"),
    )


def one_fails_whose_id_is_used_again(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 20, False),
        machine.everything_arrives_but_nobody_hears_of_it,
        partial(machine.redrive, "a", 0),
        partial(machine.tick, 0),
        partial(machine.cancel_and_use_the_id_again, "a"),
        machine.everything_arrives_but_nobody_hears_of_it,
    )


def the_id_of_one_that_was_delivered_comes_with_another_due(machine: Protocol) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 1, False),
        partial(machine.time_passes, 20),
        *[partial(machine.tick, 0)] * 2,
        partial(machine.send_ends, 0, 0, "ok"),
        partial(machine.tick, 0),
        partial(machine.schedule, "a", 20, False),
    )


PATHS = {
    "an ended id that stands for any content": the_id_of_one_that_was_delivered_comes_with_another_due,
    "no watermark": one_that_was_pulled_is_cancelled_when_redis_has_its_time_again,
    "a wake only for a new head": one_comes_behind_a_head_that_is_in_flight,
    "forgetting exposed": a_dead_letter_is_redriven_and_cancelled,
    "redrive that forgets exposed": a_dead_letter_is_redriven_and_cancelled,
    "retry that creates": one_fails_whose_id_is_used_again,
    "a wake for what is still ahead": one_is_due_before_what_the_owner_sleeps_for,
    "lowering the watermark without exposing": two_clocks_were_far_ahead,
    "a retry that falls before the offset": a_retry_falls_before_the_offset,
    "settling by id alone": an_id_is_used_again_while_it_is_sent,
    "sending what has waited": one_that_waits_behind_its_key_is_cancelled,
}


@pytest.mark.parametrize("path", PATHS)
def test_on_these_paths_nothing_is_lost_either(store: Store, path: str) -> None:
    walk(store, PATHS[path])


def search(store: Store, mutant: Mutant) -> None:
    """By its path; that of one without a path is found."""
    if mutant.name in PATHS:
        walk(store, PATHS[mutant.name])
    else:
        run(store, examples=4_000, shrink=False)


@pytest.mark.timeout(400)  # many examples, if none shows it
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_state_machine_fails_without_a_rule(
    mutant: Mutant, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(mutant, monkeypatch)
    store = Store(server_url, timeout=PATIENCE)
    try:
        with pytest.raises(AssertionError, match=mutant.says):
            search(store, mutant)
    finally:
        store.close()


def test_the_state_machine_fails_for_an_owner_that_does_not_look_again_at_what_waited(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InFlightMessage, "stale", lambda self, now: False)
    with pytest.raises(AssertionError, match="after a cancel removed it"):
        walk(store, PATHS["sending what has waited"])


def test_the_state_machine_fails_for_a_wake_that_neither_pulls_nor_moves_the_next_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pulling, "rewind", lambda self, due: None)
    with pytest.raises(AssertionError, match="is due and its owner sleeps"):
        walk(store, PATHS["a wake for what is still ahead"])


# -- pauses --------------------------------------------------------------------------------------------------------------


def both_clocks_were_far_ahead_before_a_pause(machine: Pausing) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 3_000_000, False),
        machine.both_clocks_are_far_ahead_for_a_while,
        partial(machine.pause, "g.*"),
        partial(machine.cancel, "a"),
    )


def a_second_pause_begins_later(machine: Pausing) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.pause, "g.*"),
        partial(machine.schedule, "a", 5, False),
        partial(machine.time_passes, 8),
        partial(machine.pause, "*"),
        partial(machine.cancel, "a"),
    )


def a_pause_is_over(machine: Pausing) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.pause, "g.t"),
        partial(machine.schedule, "a", 5, False),
        partial(machine.resume, "g.t"),
        partial(machine.a_node_reads_the_policies, 0),
        partial(machine.time_passes, 8),
        partial(machine.tick, 0),
        partial(machine.tick, 0),
        partial(machine.cancel, "a"),
    )


def a_node_has_not_heard_of_a_pause(machine: Pausing) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.schedule, "a", 5, False),
        partial(machine.schedule, "s1", 5, False),
        partial(machine.tick, 0),
        partial(machine.pause, "*"),
        partial(machine.time_passes, 8),
        partial(machine.tick, 0),
        partial(machine.tick, 0),
    )


def one_that_is_forced_fails(machine: Pausing) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.pause, "g.t"),
        partial(machine.a_node_reads_the_policies, 0),
        partial(machine.schedule, "a", 5, False),
        partial(machine.deliver_now, "a", True),
        *[partial(machine.tick, 0)] * 2,
        partial(machine.send_ends, 0, 0, "unavailable"),
        partial(machine.tick, 0),
        partial(machine.time_passes, 20),
        *[partial(machine.tick, 0)] * 2,
    )


def an_owner_sleeps_while_a_pause_ends(machine: Pausing) -> Iterable[Callable[[], object]]:
    return (
        machine.first_owner,
        partial(machine.pause, "g.t"),
        partial(machine.a_node_reads_the_policies, 0),
        partial(machine.schedule, "a", 5, False),
        partial(machine.time_passes, 8),
        *[partial(machine.tick, 0)] * 3,
        partial(machine.resume, "g.t"),
    )


OF_A_PAUSE = {
    "policies that wake nobody": an_owner_sleeps_while_a_pause_ends,
    "force that outlives its attempt": one_that_is_forced_fails,
    "a mark of now alone": both_clocks_were_far_ahead_before_a_pause,
    "the latest mark": a_second_pause_begins_later,
    "a mark that outlives its pause": a_pause_is_over,
    "a pull by any policies": a_node_has_not_heard_of_a_pause,
}


@pytest.mark.parametrize("path", OF_A_PAUSE)
def test_on_these_paths_of_a_pause_all_holds(store: Store, path: str) -> None:
    walk(store, OF_A_PAUSE[path], Pausing)


@pytest.mark.parametrize("mutant", OF_PAUSES, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_path_of_a_pause_shows_what_breaks_without_a_rule(
    mutant: Mutant, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(mutant, monkeypatch)
    with pytest.raises(AssertionError, match=mutant.says):
        walk(store, OF_A_PAUSE[mutant.name], Pausing)
