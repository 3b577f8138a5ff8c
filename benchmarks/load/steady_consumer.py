"""A process that reads a topic's stream through every fault, and writes a line for each entry: `id due arrival`.

Due and arrival are Unix ms. It ends on SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from benchmarks.harness import now
from benchmarks.load.through_faults import Plan
from delayq.errors import StoreError
from delayq.store.commands import plain
from delayq.store.connect.store import Store

__all__ = ["main"]

BLOCK_MS: Final = 200
AGAIN_SECONDS: Final = 0.005


def follow(store: Store, topic: str, out: IO[str], stopping: list[int]) -> None:
    """Read until told to stop."""
    last = b"0-0"
    while not stopping:
        words = ("XREAD", "COUNT", 1000, "BLOCK", BLOCK_MS, "STREAMS", topic, last)
        try:
            reply: Any = store.run(plain(*words, key=topic, read=lambda reply: reply))
        except StoreError:
            time.sleep(AGAIN_SECONDS)
            continue
        at = now()
        for _, entries in reply or ():
            for _, fields in entries:
                entry = dict(zip(fields[::2], fields[1::2], strict=True))
                out.write(f"{entry[b'id'].decode()} {int(entry[b'due'])} {at:.3f}\n")
            last = entries[-1][0]
        out.flush()


def main() -> None:
    """Follow what the plan in the first argument names, until SIGTERM."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    with closing(Store(plan.url)) as store, Path(plan.file).open("w") as out:
        follow(store, plan.topic, out, stopping)


if __name__ == "__main__":
    main()
