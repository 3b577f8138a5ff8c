"""What `delayq` itself offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import delayq


def test_every_public_name_is_there_and_told() -> None:
    assert [name for name in delayq.__all__ if not hasattr(delayq, name)] == []
    assert set(delayq.__all__) <= set(dir(delayq))
    nobody = "Kunde"
    with pytest.raises(AttributeError, match="module 'delayq' has no attribute 'Kunde'"):
        getattr(delayq, nobody)


def test_a_star_takes_every_public_name_in_a_process_of_its_own() -> None:
    code = "from delayq import *; import delayq; print([name for name in delayq.__all__ if name not in globals()])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
