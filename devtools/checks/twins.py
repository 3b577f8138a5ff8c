"""Code for threads and asyncio is written once: the module for threads is generated (devtools/unasync.py)."""

from __future__ import annotations

from collections.abc import Iterator

from devtools import unasync
from devtools.pages import at


def complaints() -> Iterator[str]:
    """Each generated module is what its source gives."""
    for path in unasync.outdated():
        yield at(path, 1, "it differs from its source: ./dev check --fix writes it again")
