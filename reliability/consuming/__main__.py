"""`python -m reliability.consuming`: consumers while processes, servers and connections break; then the records are checked.

The exit status is 0 if every promise is kept, 1 if one is broken, and 2 if the run cannot end.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from delayq.base.errors import DelayqError
from reliability.consuming.runner import run
from reliability.waiting import GaveUp


def main() -> int:
    """Run what the command line asks for, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m reliability.consuming", description=__doc__)
    parser.add_argument("--faults", type=int, default=30, help="how many (%(default)s)")
    parser.add_argument("--messages", type=int, default=0, help="schedule at least so many (%(default)s)")
    parser.add_argument("--rate", type=float, default=25, help="messages a second (%(default)s)")
    parser.add_argument("--seed", type=int, help="draw the same faults again (new: at random)")
    parser.add_argument("--each-kind", action="store_true", help="begin with one fault of each kind")
    parser.add_argument("--records", type=Path, help="folder of the records (build/consuming/<time>-<seed>)")
    given = parser.parse_args()
    if given.rate <= 0:
        parser.error("--rate is above 0")
    if given.faults < 1:
        parser.error("--faults is at least 1")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    folder = given.records or Path("build") / "consuming" / time.strftime(f"%Y%m%d-%H%M%S-{seed}")
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"{folder} is not empty: choose a new folder")
    print(f"seed {seed}, {given.faults} faults, records in {folder}", flush=True)
    try:
        verdict = run(
            folder.resolve(),
            seed,
            given.faults,
            messages=given.messages,
            rate=given.rate,
            each_kind=given.each_kind,
            say=lambda text: print(text, flush=True),
        )
    except (DelayqError, GaveUp) as error:
        print(f"consuming: {error}", file=sys.stderr)
        return 2
    wrong = {
        "lost": verdict.lost,
        "two valid leases": verdict.doubled,
        "again": verdict.again,
        "overtaken": verdict.overtaken,
    }
    for name, found in wrong.items():
        for example in found[:5]:
            print(f"WRONG: {name}: {example}")
    for other in verdict.others:
        print(f"WRONG: {other}")
    print(f"calls without an answer {verdict.failed_calls}, leases lost {verdict.lost_leases}")
    print(f"faults {given.faults}, {verdict.line}")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
