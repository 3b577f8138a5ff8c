"""What a mutant changes, only its own test runs."""

from __future__ import annotations

import pytest

from delayq.store import scripts
from tests.protocol.mutants import MUTANTS, OF_PAUSES, plant


def test_after_a_test_the_scripts_are_what_they_were() -> None:
    changed = MUTANTS[0].changes[0][0]
    real = scripts.load(changed)
    with pytest.MonkeyPatch.context() as patch:
        plant(MUTANTS[0], patch)
        assert scripts.load(changed).sha != real.sha
    assert scripts.load(changed) == real


def test_of_each_it_is_said_what_fails_without_its_rule() -> None:
    assert [mutant.name for mutant in (*MUTANTS, *OF_PAUSES) if not mutant.says] == []
