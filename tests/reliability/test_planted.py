"""The mutants that are planted in the source still find their places there."""

from __future__ import annotations

import pytest

from reliability.mutants.kinds import ROOT
from reliability.mutants.planted import PLANTED, Planted


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_stands_in_its_file_once(mutant: Planted) -> None:
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.there) == 1
