"""The chaos run finds what it is there to find: with a rule taken out of scripts or owner, it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.chaos.checker import Verdict
from reliability.chaos.faults import Fault
from reliability.chaos.mutants import MUTANTS, Mutant
from reliability.chaos.options import Options
from reliability.chaos.runner import run
from reliability.waiting import PATIENCE
from testbed.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.release


#: A busy machine may do too little while the faults last. Then the run is repeated, with longer faults.
SCALES = (1, 2, 4)


def run_it(folder: Path, zookeeper: ZooKeeperServer, root: str, scale: int = 1, **given: Any) -> Verdict:
    """A small service, little traffic, and the given faults, each so many times later and longer."""
    aimed = tuple(one._replace(at=one.at * scale, seconds=one.seconds * scale) for one in given.pop("aimed"))
    small: dict[str, Any] = {
        "minutes": scale * 5 / 60, "rate": 500, "batch": 25, "nodes": 2, "apis": 1, "longest_delay": 2.0, "patience": 4.0,
        "drain": 4.0, "session_timeout": 2_000, "folder": folder / str(scale), "aimed": aimed,
    }  # fmt: skip
    return run(Options(**(small | given)), zookeeper=zookeeper, root=f"{root}-{scale}")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_run_fails_without_a_rule(
    mutant: Mutant, tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    for scale in SCALES:
        verdict = run_it(
            tmp_path, zookeeper, zookeeper_root, scale, mutant=mutant.name, aimed=mutant.faults, **mutant.traffic
        )
        print(verdict.line, verdict.wrong)
        if set(mutant.finds) <= set(verdict.wrong):
            return
    pytest.fail(f"no run finds: {', '.join(mutant.finds)}")


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
        senders=2,
        patience=30.0,
        drain=PATIENCE,
    )
    assert not verdict.wrong, verdict
