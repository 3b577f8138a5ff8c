"""`python -m reliability.soak`: exit status 0 when nothing is wrong, 1 when something is, 2 when it cannot be run here."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from delayq.base.errors import DelayqError
from reliability.chaos.checker import Verdict
from reliability.chaos.options import Options
from reliability.chaos.runner import run
from reliability.chaos.stack import Stack
from reliability.soak import plot, report
from reliability.soak.options import options_of, parse
from reliability.soak.sampling import Sample, Sampler
from reliability.waiting import GaveUp
from testbed import zookeeper
from testbed.errors import ServerMissing


def main() -> int:
    """Run, and print what came of it."""
    given = parse()
    if not Path("/proc/self/smaps_rollup").exists():
        print("soak: memory of other processes is read in Linux's way, from /proc", file=sys.stderr)
        return 2
    missing = _without_zookeeper()
    options = options_of(given, zookeeper=not missing)
    if missing:
        print(f"soak: with one worker and no ZooKeeper: {missing}", file=sys.stderr)
    if not options.redis:
        print("soak: no redis-server: the embedded Valkey's resident memory is not judged", file=sys.stderr)
    print(f"seed {options.seed}, {options.minutes} min at {options.rate}/s, in {options.folder}", flush=True)
    try:
        verdict, samples = _soak(options)
    except (DelayqError, GaveUp) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    made = report.make(options, verdict, samples)
    report.save(made, options.folder)
    plot.draw(made, options.folder)
    print(made.table())
    for name, value in made.wrong.items():
        print(f"WRONG: {name}: {value}")
    for name, examples in verdict.examples.items():
        print(f"  {name}, for example: {json.dumps(examples[:5])}")
    print(made.verdict)
    print(made.line)
    return 1 if made.wrong else 0


def _without_zookeeper() -> str:
    """Why there can be none; nothing if there can."""
    try:
        zookeeper.obtain()
    except ServerMissing as error:
        return str(error)
    return ""


def _soak(options: Options) -> tuple[Verdict, list[Sample]]:
    samplers: list[Sampler] = []

    def beside(stack: Stack) -> Sampler:
        samplers.append(Sampler(stack))
        return samplers[0]

    verdict = run(options, say=lambda text: print(text, flush=True), beside=beside)
    if samplers[0].failed is not None:
        raise samplers[0].failed
    return verdict, samplers[0].samples


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all that was started is stopped
    sys.exit(main())
