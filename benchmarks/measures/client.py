"""The CPU of imports: the cost of the Python client and the command line before their first call to Redis.

Each figure is the user and system CPU of a process of its own. `import delayq` alone imports next to nothing, because a name
is imported when it is used. So `from delayq import Client, Message` is measured, too. The limit is `import redis` in the
same round. `delayq schedule` schedules one message on a fresh server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from benchmarks import BenchmarkError
from benchmarks.harness import Scale, in_turns
from benchmarks.results import Figure, Pair, paired, single
from benchmarks.running.processes import server

#: The CPU of an import beside that of redis-py, and the seconds of a call of the command line.
MOST_RATIO: Final = 1.5
MOST_SECONDS: Final = 0.3
IMPORTS: Final = {"import delayq": "import delayq", "Client and Message": "from delayq import Client, Message"}
CALLS: Final = {"delayq schedule": "schedule t hello --delay 1h", "delayq --version": "--version"}
LIMIT: Final = "import redis"


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure imports beside redis-py's, and two calls of the command line."""
    with server() as running:
        python = partial(_cpu, sys.executable, redis_url=running.url)
        measures: Mapping[str, Callable[[], float]] = {
            LIMIT: partial(python, "-c", LIMIT),
            **{name: partial(python, "-c", code) for name, code in IMPORTS.items()},
            **{name: partial(python, "-m", "delayq.cli", *words.split()) for name, words in CALLS.items()},
        }
        for measure in measures.values():
            measure()  # compiles the modules and reads them from the disk
        rounds = in_turns("imports", 5 * scale.runs, measures, swap=True)
    return [
        *(
            paired(
                f"{name}, CPU beside import redis",
                "ms",
                [Pair(1000 * one[name], 1000 * one[LIMIT]) for one in rounds],
                goal=MOST_RATIO,
                at_most=True,
            )
            for name in IMPORTS
        ),
        *(
            single(f"{name}, CPU", "ms", [1000 * one[name] for one in rounds], goal=1000 * MOST_SECONDS)
            for name in CALLS
        ),
    ], {}


def _cpu(*command: str, redis_url: str) -> float:
    """The CPU seconds of a process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
    with subprocess.Popen(
        command,
        env={**clean, "DELAYQ_REDIS_URL": redis_url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchmarkError(f"{' '.join(command)} ended with {process.returncode}: {said.decode(errors='replace')}")
    return used.ru_utime + used.ru_stime
