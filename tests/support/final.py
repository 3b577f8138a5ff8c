"""How an id ended, as the scores of `final` have it: what `include/final.lua` writes."""

from __future__ import annotations

from math import ldexp
from typing import Final

FORWARDED: Final = 0
CANCELLED: Final = 1
CANCELLED_IN_FLIGHT: Final = 2


def ended(now: int, how: int, digest: int = 0) -> str:
    """The score of an id that ended `now` (ms); `digest` (19 bits) is of its content if it was delivered."""
    high, low = divmod(now, 2**31)
    return repr(ldexp(2**52 + low * 2**21 + digest * 4 + how, high - 752))
