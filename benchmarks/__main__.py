"""The command line: `python -m benchmarks NAME [--quick] [--json FILE | --beside CHECKOUT]`, or `./dev bench`."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks import BenchmarkError, report
from benchmarks.beside import beside, changes
from benchmarks.harness import Scale, StealMeter, measuring, progress, warn_if_busy, warn_if_full
from benchmarks.results import (
    ALONE,
    CHANGED,
    NAMES,
    ROOT,
    SECONDS,
    STOLEN,
    Environment,
    Result,
    commit,
    load,
    save,
)
from benchmarks.running.processes import allocator, server_for
from delayq.base.errors import ConfigError, DelayqError
from delayq.store import checks
from delayq.store.connect.store import Store
from testbed.errors import ServerMissing

#: The benchmarks that accept `--redis-url`.
ANYWHERE: Final = ("schedule", "http", "drain", "lateness")
DEFAULT_JSON: Final = ROOT / "build" / "benchmarks.json"


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; a wrong one ends the program with status 2."""
    names = [*NAMES, *ALONE, "changes", "all"]
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        allow_abbrev=False,
        description="Measure delayq beside a limit of the same run. A missed goal is reported and is no failure. `all` "
        "takes over an hour on a machine without other work and renders docs/benchmarks.md; it skips results of the same "
        "commit. `controls` takes over half an hour and is not part of `all`. `growth` needs 4 GB of memory and 10 GB in "
        "the folder for temporary files (TMPDIR). `failover` and `scale` need Java and a ZooKeeper, `spark` needs Java. "
        "`peers` measures the peers whose toolchains are installed. `changes` needs --beside: it measures the cost of a "
        "message in both checkouts at the same time, and shows differences of one or two percent.",
    )
    parser.add_argument("name", metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="fewer messages, one run; never rendered")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file as JSON")
    parser.add_argument(
        "--redis-url",
        default="",
        metavar="URL",
        help=f"measure delayq on this Redis, Sentinel group or Redis Cluster, which must be without delayq data; "
        f"for {', '.join(ANYWHERE)}. The limit is still measured on a fresh server here",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="CHECKOUT",
        help="measure this checkout and that one in turn, and print only their ratios (here divided by there)",
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds with --beside (3)")
    parser.add_argument("--part", default="", metavar="PART", help="with controls or peers: measure only this part")
    parser.add_argument(
        "--pending",
        type=int,
        default=0,
        metavar="N",
        help="with controls: the number of pending messages (topics, for the part topics)",
    )
    given = parser.parse_args(arguments)
    if (given.part and given.name not in ("controls", "peers")) or (given.pending and given.name != "controls"):
        parser.error("--part needs controls or peers, --pending needs controls")
    if given.beside and (given.name == "all" or given.redis_url or given.json or given.rounds < 1):
        parser.error("--beside needs one benchmark on its own servers, without --json")
    if given.name == "changes" and not given.beside:
        parser.error("changes needs --beside CHECKOUT")
    if given.redis_url and given.name not in ANYWHERE:
        parser.error(f"--redis-url needs one of {', '.join(ANYWHERE)}")
    return given


def measure(name: str, scale: Scale) -> Result:
    """Run one benchmark and print its figures."""
    quick = ", quick: fewer messages, one run" if scale.quick else ""
    progress(f"{name}{quick}")
    meter, began = StealMeter(), time.monotonic()
    with measuring(name):
        figures, details = importlib.import_module(f"benchmarks.measures.{name}").run(scale)
    details[STOLEN] = meter.share()
    with server_for(scale) as running:
        where = environment(running.url)
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


def environment(url: str) -> Environment:
    """Describe this machine, and the server at `url`."""
    with closing(Store(url)) as store:
        server = store.run(checks.server())
    memory = _found("/proc/meminfo", r"^MemTotal:\s+(\d+)")
    return Environment(
        cpu=_found("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        cores=os.cpu_count() or 0,
        memory=f"{int(memory) / 1024**2:.0f} GiB" if memory.isdigit() else memory,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        redis_py=version("redis"),
        server=f"{server.name} {server.version}" + (f", {server.primaries} primaries" * (server.primaries > 1)),
        allocator=allocator(url),
        commit=commit(),
    )


def _found(path: str, pattern: str) -> str:
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1) if match else "unknown"


def measured_before(path: Path, quick: bool) -> dict[str, Result]:
    """The results of this commit in a file, full or quick ones as requested."""
    here = commit()
    if not path.exists() or here.endswith(CHANGED):
        return {}
    found = {result.name: result for result in load(path) if result.environment.commit == here}
    return {name: result for name, result in found.items() if result.quick == quick and not result.elsewhere}


def measure_all(quick: bool, target: Path) -> int:
    """Run all benchmarks without a result; a failed one does not stop the others."""
    found = measured_before(target, quick)
    if found:
        progress(f"{target} has results of this commit for {', '.join(found)}")
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
        reasons = "; ".join(f"{name}: {(str(error) or repr(error)).splitlines()[0]}" for name, error in failed.items())
        print(f"benchmarks: {len(failed)} of {len(NAMES)} failed: {reasons}", file=sys.stderr)
        return 1
    results = [found[name] for name in NAMES]
    if report.publishable(results):
        print(f"\nwritten: {report.render(results)}")
    return 0


def _minutes(names: Sequence[str]) -> str:
    return f"{sum(SECONDS[name] for name in names) / 60:.0f} min"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark of the command line."""
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
            return measure_all(given.quick, given.json or DEFAULT_JSON)
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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if it was inherited as ignored
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers stop and folders are removed
    sys.exit(main())
