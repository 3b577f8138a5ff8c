"""What a check says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

__all__ = ["FAIL", "OK", "WARN", "Check", "name_queues"]

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at: 'ok', 'warn' or 'fail', one sentence, and how to mend it."""

    name: str
    result: str
    text: str
    mend: str = ""


def name_queues(numbers: Sequence[int]) -> str:
    """Queues in a sentence, not more than it can bear."""
    if len(numbers) == 1:
        return f"queue {numbers[0]}"
    named = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"{len(numbers)} queues ({named})"
