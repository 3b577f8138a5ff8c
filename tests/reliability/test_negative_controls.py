"""The chaos run finds what it is there to find: with a rule taken out of scripts or owner, it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.chaos.checker import Verdict
from reliability.chaos.faults import Fault
from reliability.chaos.mutants import MUTANTS, Mutant
from reliability.chaos.options import Options
from reliability.chaos.runner import run
from reliability.waiting import PATIENCE
from testbed.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.release


def run_it(folder: Path, zookeeper: ZooKeeperServer, root: str, **given: object) -> Verdict:
    """A small service, little traffic, and the faults that are given."""
    small: dict[str, object] = {
        "minutes": 5 / 60, "rate": 500, "batch": 25, "nodes": 2, "apis": 1, "longest_delay": 2.0, "patience": 4.0, "drain": 4.0,
        "session_timeout": 2_000, "folder": folder,
    }  # fmt: skip
    return run(Options(**(small | given)), zookeeper=zookeeper, root=root)  # type: ignore[arg-type]  # each by its name


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_run_fails_without_a_rule(
    mutant: Mutant, tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    verdict = run_it(tmp_path, zookeeper, zookeeper_root, mutant=mutant.name, aimed=mutant.faults, **mutant.traffic)
    print(verdict.line, verdict.wrong)
    assert set(mutant.finds) <= set(verdict.wrong)


def _every_aim() -> Iterator[Fault]:
    for mutant in MUTANTS:
        yield from mutant.faults


def test_the_aimed_faults_do_no_harm_to_the_real_thing(
    tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    aimed = tuple(sorted(set(_every_aim())))
    verdict = run_it(
        tmp_path,
        zookeeper,
        zookeeper_root,
        aimed=aimed,
        cancelled=0.4,
        moved=0.2,
        after_due=0.7,
        forwarders=2,
        patience=30.0,
        drain=PATIENCE,
    )
    assert not verdict.wrong, verdict
