"""Which tests run in the same process when they run in several: a file's, and those on one broker, which they share."""

from __future__ import annotations

import re

from xdist.scheduler import LoadFileScheduling

__all__ = ["Scheduling", "scope_of"]

_BROKER = re.compile(r"(kafka|rabbitmq|rocketmq)")


def scope_of(test: str) -> str:
    """The broker that a test of a target names, in its file or its parameters; else the test's file."""
    file = test.partition("::")[0]
    found = _BROKER.search(test) if file.startswith("tests/targets/") else None
    return found[1] if found else file


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, but for that."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
