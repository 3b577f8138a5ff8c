"""What the doctor says of who owns the queues, and what it advises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.domain.nodes import LINE_AGE, SAME_NAME
from tests.cli.conftest import Cli, Given
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH

ALL = range(16)
Owners = Callable[[], list[tuple[str, str, str]]]
LATER_ERA = f"{3:010d}.{1:020d}"
ZK: dict[str, Any] = {"coordinator": "zookeeper"}
LOCAL: dict[str, Any] = {"coordinator": "local"}


@pytest.fixture
def owners(cli: Cli, given: Given) -> Owners:
    """Runs the doctor: result, sentence and advice of each check of the owners."""
    given.client.context()

    def run() -> list[tuple[str, str, str]]:
        ran = cli("doctor")
        found = [(result, text, mend) for result, name, text, mend in ran.rows if name == "owners"]
        assert ran.code == int(any(result == "fail" for result, _, _ in found))
        return found

    return run


def test_every_queue_owned_under_the_stored_epoch_is_ok(given: Given, owners: Owners) -> None:
    given.stored(EPOCH, ALL)
    given.owner("b", range(8), **ZK)
    given.owner("a", range(8, 16), epoch=NEW_EPOCH, **ZK)  # claimed between two looks
    given.owner("gone", ALL, epoch=NEW_EPOCH, age=LINE_AGE + 1_000)
    assert owners() == [("ok", "every queue has an owner: a, b", "")]
    # Lines of older workers are enough.
    given.owner("a", ALL, queues={str(queue): NEW_EPOCH for queue in ALL})
    given.owner("b", ALL, queues={"0": EPOCH})
    assert owners() == [("ok", "every queue has an owner: a", "")]


def test_without_a_live_node_a_worker_has_to_be_started(given: Given, owners: Owners) -> None:
    """C6: Workers report `waiting_for_coordinator`, and `delayq doctor` reports queues without an owner."""
    given.owner("gone", ALL, age=LINE_AGE + 1_000)
    ((result, text, mend),) = owners()
    assert (result, text) == ("warn", "16 queues (0, 1, 2, 3, 4, 5, 6, 7, …) without an owner")
    assert mend.startswith("start a worker")
    given.scheduled("a")
    ((result, text, _),) = owners()
    assert (result, text.endswith(", with 1 message that no node delivers")) == ("fail", True)


def test_a_queue_that_no_live_node_ever_claimed_is_told(given: Given, owners: Owners) -> None:
    given.scheduled("a")
    queue = given.queue_of("a")
    given.owner("node-1", range(queue))
    given.owner("node-2", range(queue + 1, 16))
    ((result, text, mend),) = owners()
    assert (result, text) == (
        "fail",
        f"queue {queue} without an owner, with 1 message that no node delivers, though node-1, node-2 are live: "
        "no node has ever claimed them",
    )
    assert "logs of the workers" in mend


#: How many queues have a newer epoch, the nodes that are live (name, queues, coordinator), why they own nothing, advice.
FENCED: list[tuple[int, list[tuple[str, range, dict[str, Any]]], str, str]] = [
    (
        1, [("a", ALL, ZK), ("b", range(0), ZK)],
        "queue 0 without an owner, though a, b are live (a is fenced): most likely ZooKeeper", "delayq era bump",
    ),
    (
        16, [("a", ALL, LOCAL)],
        "though a is live (a is fenced): they were fenced by a node that is gone", "check again in 15 s",
    ),
    (
        16, [("a", ALL, LOCAL), ("b", range(0), ZK)],
        "they use different coordinators (local, zookeeper)", "start all workers with the same coordinator",
    ),
    (
        16, [("a", range(3, 16), ZK | {"epoch": NEW_EPOCH})],
        "3 queues (0, 1, 2) without an owner, though a is live: most likely ZooKeeper's data was deleted, or the "
        "coordinator was changed, so that new epochs are too low",
        "delayq era bump",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "nodes", "cause", "advice"), FENCED)
def test_a_node_that_claims_less_than_redis_has_owns_nothing(
    given: Given, owners: Owners, stored: int, nodes: list[tuple[str, range, dict[str, Any]]], cause: str, advice: str
) -> None:
    given.stored(NEW_EPOCH, range(stored))
    for name, queues, coordinator in nodes:
        given.owner(name, queues, **{"epoch": OLD_EPOCH} | coordinator)
    ((result, text, mend),) = owners()
    assert result == "warn"
    assert cause in text
    assert mend.startswith(advice)
    assert ("delayq era bump" in mend) == ("zookeeper" in cause.lower())


def test_workers_with_one_name_are_named_as_the_cause(given: Given, cli: Cli) -> None:
    given.client.context()
    given.stored(NEW_EPOCH, ALL)
    given.owner(
        "a", ALL, **LOCAL, epoch=OLD_EPOCH, complaints=["another worker has the name a, too"], codes=[SAME_NAME]
    )
    ((text, mend),) = [(text, mend) for _, name, text, mend in cli("doctor").rows if name == "owners"]
    assert text.endswith("though a is live (a is fenced): several workers have the name a")
    assert mend == "give each worker a DELAYQ_NODE of its own"


def test_what_has_only_just_changed_is_no_cause_for_alarm_yet(given: Given, owners: Owners) -> None:
    given.stored(EPOCH, ALL)
    for moment in ("since", "handed_over"):
        now = given.owner("a", range(8), **ZK)
        given.owner("b", range(8, 12), **ZK | {moment: now - 5_000})
        ((result, text, mend),) = owners()
        assert (result, mend) == ("warn", "check again in 15 s")
        assert "within the last 15 s" in text


def test_an_epoch_of_a_later_era_is_told_whether_the_queue_has_an_owner_or_not_until_the_era_is_new(
    cli: Cli, given: Given, owners: Owners
) -> None:
    given.stored(LATER_ERA, range(2))
    given.owner("a", range(1), epoch=LATER_ERA, **ZK)
    given.owner("b", range(2, 16), **ZK)
    (lacking, owned) = owners()
    assert lacking[1].startswith("queue 1 without an owner, though a, b are live: Redis has an epoch of a later era")
    assert owned[1].startswith("queue 0 owned under an epoch of a later era than the current one, 0,")
    assert {mend for _, _, mend in (lacking, owned)} == {"delayq era bump"}
    given.owner("a", ALL, epoch=LATER_ERA, **ZK)
    assert [result for result, _, _ in owners()] == ["warn"]
    assert cli("era", "bump", "--yes").code == 0
    assert [result for result, _, _ in owners()] == ["ok"]


def test_a_node_that_does_not_let_go_is_told(given: Given, owners: Owners) -> None:
    given.stored(EPOCH, ALL)
    given.owner("new", ALL, owned_for=LINE_AGE + 1_000, **ZK)
    given.owner("old", range(2), epoch=OLD_EPOCH, **ZK)
    ((result, text, mend),) = owners()
    assert (result, text) == (
        "warn",
        "old was fenced from 2 queues (0, 1) more than 15 s ago and has not released them",
    )
    assert "see the log of old" in mend
    given.owner("new", ALL, owned_for=1_000, **ZK)  # an old owner may take a moment
    assert [result for result, _, _ in owners()] == ["ok"]
