"""What `delayq` itself offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import delayq


def test_every_public_name_is_there_and_told() -> None:
    assert [name for name in delayq.__all__ if not hasattr(delayq, name)] == []
    assert set(delayq.__all__) <= set(dir(delayq))
    nobody = "Kunde"
    with pytest.raises(AttributeError, match="module 'delayq' has no attribute 'Kunde'"):
        getattr(delayq, nobody)


def test_a_star_takes_every_public_name_in_a_process_of_its_own() -> None:
    code = "from delayq import *; import delayq; assert set(delayq.__all__) <= set(globals())"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_type_checkers_know_is_what_there_is() -> None:
    """The names stand twice: where they are imported for who checks types, and where each is found."""
    tree = ast.parse(Path(delayq.__file__).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {
        name.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert imported == delayq._PLACES
    assert sorted(imported) == sorted(delayq.__all__)
