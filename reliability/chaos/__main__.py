"""`python -m reliability.chaos`: exit status 0 when nothing is wrong, 1 when something is, 2 when it cannot be run here."""

from __future__ import annotations

import json
import sys

from delayq.base.errors import DelayqError
from reliability.chaos.options import parse
from reliability.chaos.runner import run
from reliability.waiting import GaveUp
from testbed import zookeeper
from testbed.errors import ServerMissing


def main() -> int:
    """Run, and print what came of it."""
    options = parse()
    try:
        zookeeper.obtain()
    except ServerMissing as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    print(f"seed {options.seed}, {options.minutes} min, history in {options.folder}", flush=True)
    try:
        verdict = run(options, say=lambda text: print(text, flush=True))
    except (DelayqError, GaveUp) as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    print(
        f"delivered {verdict.forwarded}, cancelled for certain {verdict.cancelled}, "
        f"schedules without an outcome {verdict.unknown}"
    )
    for name, value in verdict.wrong.items():
        print(f"WRONG: {name}: {value}")
    for name, examples in verdict.examples.items():
        print(f"  {name}, for example: {json.dumps(examples[:5])}")
    print(verdict.line)
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
