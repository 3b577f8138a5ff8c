"""The command line: `python -m benchmarks NAME [--quick] [--json FILE | --beside CHECKOUT]`, or `./dev bench`."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.beside import beside
from benchmarks.changes import changes
from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, StealMeter, progress, warn_if_busy, warn_if_full
from benchmarks.results import ALONE, CHANGED, NAMES, SECONDS, STOLEN, Result, commit, environment, load, save
from benchmarks.running import limit
from benchmarks.running.processes import server_for
from delayq.errors import ConfigError, DelayqError
from testbed.errors import ServerMissing

__all__ = ["main"]

#: The benchmarks that can be run on a Redis of one's own.
ANYWHERE: Final = ("schedule", "http", "drain", "lateness")
DEFAULT_JSON: Final = report.ROOT / "build" / "benchmarks.json"


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends with 2 if it is wrong."""
    names = [*NAMES, *ALONE, "changes", "all"]
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        allow_abbrev=False,
        description="Measure delayq beside a limit measured in the same run. Goals that are missed are told, "
        "and are no failure. `all`, in full, takes over an hour of a machine that does nothing else, and renders "
        "docs/benchmarks.md; what was measured of this very commit before is left out. `controls`, in full, takes over "
        "half an hour, and is not one of `all`. `growth`, in full, needs 4 GB of memory and 10 GB in the folder for "
        "temporary files (TMPDIR); `failover` and `scale` need Java and a ZooKeeper, `spark` needs Java; `peers` are those "
        "whose toolchains are there. `changes` goes with --beside: what a message costs in both checkouts, second by "
        "second, where runs in turns tell no percents.",
    )
    parser.add_argument("name", metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="fewer messages, once; never rendered")
    parser.add_argument(
        "--anew", action="store_true", help="with all: measure also what was measured of this commit before"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as JSON")
    parser.add_argument(
        "--redis-url",
        default="",
        metavar="URL",
        help=f"measure delayq on this Redis, group behind sentinels or Redis Cluster, which must not know delayq yet; "
        f"for {', '.join(ANYWHERE)}. The limit stays that of a fresh server here",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="CHECKOUT",
        help="measure this checkout and that one in turns, and tell only their ratios, here by there",
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="how often, with --beside (3)")
    parser.add_argument("--part", default="", metavar="PART", help="of controls: this part only")
    parser.add_argument("--pending", type=int, default=0, metavar="N", help="of controls: messages that wait meanwhile")
    given = parser.parse_args(arguments)
    if (given.part or given.pending) and given.name != "controls":
        parser.error("--part and --pending go with controls")
    if given.beside and (given.name == "all" or given.redis_url or given.json or given.rounds < 1):
        parser.error("--beside goes with one benchmark, on servers of its own, and tells what it finds")
    if given.name == "changes" and not given.beside:
        parser.error("changes goes with --beside CHECKOUT")
    if given.anew and given.name != "all":
        parser.error("--anew goes with all; one benchmark is always measured anew")
    if given.redis_url and given.name not in ANYWHERE:
        parser.error(f"--redis-url goes with {', '.join(ANYWHERE)}")
    return given


def measure(name: str, scale: Scale) -> Result:
    """Run one benchmark and print what it found."""
    quick = ", quick: fewer messages, once" if scale.quick else ""
    progress(f"{name}{quick}")
    meter, began = StealMeter(), time.monotonic()
    figures, details = importlib.import_module(f"benchmarks.measures.{name}").run(scale)
    details[STOLEN] = meter.share()
    with server_for(scale) as running:
        where = environment(running.url, limit.redis_cli() or "")
    result = Result(
        name=name,
        quick=scale.quick,
        messages=scale.messages,
        environment=where,
        figures=figures,
        details=details,
        elsewhere=bool(scale.redis_url),
        seconds=round(time.monotonic() - began),
    )
    print(f"\n{name}{quick}")
    for figure in figures:
        print(f"  {figure.line()}")
    if result.disturbance:
        print(f"  {result.disturbance}")
    sys.stdout.flush()
    return result


def measured_before(path: Path, quick: bool) -> dict[str, Result]:
    """What the file has of this very commit, in full or quick as is wanted."""
    here = commit()
    if not path.exists() or here.endswith(CHANGED):
        return {}
    found = {result.name: result for result in load(path) if result.environment.commit == here}
    return {name: result for name, result in found.items() if result.quick == quick and not result.elsewhere}


def measure_all(quick: bool, target: Path, *, anew: bool) -> int:
    """Run all benchmarks but those that were run before; one that fails does not keep the others from it."""
    found = {} if anew else measured_before(target, quick)
    if found:
        progress(f"measured before, of this commit: {', '.join(found)} (--anew measures them again)")
    left = [name for name in NAMES if name not in found]
    if not quick:
        progress(
            f"about {_minutes(left)} on two quiet cores: {', '.join(f'{name} {SECONDS[name]} s' for name in left)}"
        )
    failed: dict[str, Exception] = {}
    for place, name in enumerate(left):
        progress(f"{place + 1} of {len(left)}" + (f", about {_minutes(left[place:])} to go" if not quick else ""))
        try:
            found[name] = measure(name, Scale(quick))
        except Exception as error:
            if not isinstance(error, (BenchmarkError, DelayqError, ServerMissing)):
                traceback.print_exc()
            print(f"benchmarks: {name}: {error}", file=sys.stderr)
            failed[name] = error
        save(target, [found[name] for name in NAMES if name in found])
    if failed:
        told = "; ".join(f"{name}: {(str(error) or repr(error)).splitlines()[0]}" for name, error in failed.items())
        print(f"benchmarks: {len(failed)} of {len(NAMES)} failed: {told}", file=sys.stderr)
        return 1
    results = [found[name] for name in NAMES]
    if report.publishable(results):
        print(f"\nwritten: {report.render(results)}")
    return 0


def _minutes(names: Sequence[str]) -> str:
    return f"{sum(SECONDS[name] for name in names) / 60:.0f} min"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names."""
    given = options(sys.argv[1:] if arguments is None else arguments)
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        del os.environ[name]  # a benchmark has its own servers and settings
    warn_if_busy()
    warn_if_full()
    try:
        if given.beside:
            other = given.beside.resolve()
            if given.name == "changes":
                found = changes(other, given.rounds, quick=given.quick)
            else:
                found = beside(given.name, other, given.rounds, quick=given.quick)
            print("\n".join(figure.line() for figure in found))
            return 0
        if given.name == "all":
            return measure_all(given.quick, given.json or DEFAULT_JSON, anew=given.anew)
        result = measure(given.name, Scale(given.quick, given.redis_url, given.part, given.pending))
        if given.json is not None:
            save(given.json, [result])
    except (ServerMissing, ConfigError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except (BenchmarkError, DelayqError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was inherited as ignored
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped, folders removed
    sys.exit(main())
