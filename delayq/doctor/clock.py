"""The clock of this machine, compared with the clock of Redis."""

from __future__ import annotations

from typing import Final

from delayq.base.clock import Clock
from delayq.client.findings import FAIL, OK, WARN, Check
from delayq.store import commands
from delayq.store.connect.store import Store

SKEW_WARN, SKEW_FAIL = 250, 2_000
SAMPLES: Final = 5


def check_clock(store: Store, clock: Clock) -> Check:
    """The difference of the two clocks. A pull uses the earlier one, so a difference makes messages late, never early."""
    samples: list[tuple[int, int]] = []
    for _ in range(SAMPLES):
        before = clock.now()
        theirs = store.run(commands.redis_now())
        after = clock.now()
        samples.append((after - before, theirs - (before + after) // 2))
    round_trip, skew = min(samples, key=lambda sample: sample[0])  # the fastest answer is the most precise
    text = f"Redis is {abs(skew)} ms {'behind' if skew < 0 else 'ahead of'} this machine (± {round_trip // 2 + 1} ms)"
    if abs(skew) < SKEW_WARN:
        return Check("clock", OK, text)
    mend = "synchronize both clocks (NTP): messages are sent by the later one"
    return Check("clock", FAIL if abs(skew) >= SKEW_FAIL else WARN, text, mend)
