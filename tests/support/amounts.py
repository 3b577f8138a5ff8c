"""How much the random tests try: few examples in every run, many before a release."""

from __future__ import annotations

import os
from typing import Final

#: `./dev test --all` sets the variable.
ALL: Final = os.environ.get("DELAYQ_TEST_ALL", "") not in ("", "0")


def amount(usual: int, everything: int) -> int:
    """`usual` seeds or examples in `./dev test` and `./dev test --long`, `everything` in `./dev test --all`."""
    return everything if ALL else usual
