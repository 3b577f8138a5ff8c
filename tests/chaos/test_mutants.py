"""The mutants can be planted: what each takes out is there."""

from __future__ import annotations

import pytest

from tests.chaos.faults import KINDS
from tests.chaos.mutants import MUTANTS, Mutant
from tests.protocol.mutants import Mutant as Rule
from tests.protocol.mutants import mutated


def test_there_are_ten_and_more_each_by_its_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_finds_what_it_changes_and_is_found_by_faults_that_there_are(mutant: Mutant) -> None:
    source = mutated(Rule(mutant.name, mutant.changes))
    for script, there, instead in mutant.changes:
        assert instead in source(script)
        assert there not in source(script).replace(instead, "")
    assert mutant.changes or mutant.owner is not None
    assert {fault.kind for fault in mutant.faults} <= KINDS.keys()
    assert mutant.faults
