"""Tools of every benchmark: scales, progress, clocks, turns, CPU and memory of processes."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from benchmarks import BenchmarkError
from benchmarks.results import Pair
from delayq.base.progress import Progress

#: Enough pairs were measured if the standard error of their ratios is at most this share of the median.
SURE: Final = 0.02
#: Bytes of disk space that servers may need.
ROOM: Final = 10 * 2**30
_began = time.monotonic()
_step: Progress | None = None
T = TypeVar("T")


class Scale(msgspec.Struct, frozen=True):
    """How much to measure: everything, or `quick` figures that are never published.

    With `redis_url`, delayq is measured on that Redis; these figures are not published either. `part` selects one part of
    `controls`, `pending` sets the number of pending messages of the parts that accept it.
    """

    quick: bool
    redis_url: str = ""
    part: str = ""
    pending: int = 0

    @property
    def messages(self) -> int:
        """The number of messages of a benchmark."""
        return 100_000 if self.quick else 1_000_000

    @property
    def runs(self) -> int:
        """The number of runs of each measurement; the median counts."""
        return 1 if self.quick else 3


@contextmanager
def measuring(name: str) -> Iterator[None]:
    """Show between two lines of `progress`, too, that the benchmark runs."""
    global _step
    with Progress(name, name="bench") as _step:
        try:
            yield
        finally:
            _step = None


def progress(text: str) -> None:
    """Print to stderr what the benchmark is doing."""
    with nullcontext() if _step is None else _step.hidden():
        print(f"[{time.monotonic() - _began:6.1f} s] {text}", file=sys.stderr, flush=True)
    if _step is not None:
        _step.show(text)


def warn_if_busy() -> None:
    """Warn if the machine is busy, because other load slows delayq and the limit differently."""
    one, five, _ = os.getloadavg()
    if one + five > 1:
        progress(
            f"the machine is or was busy (load average {one:.1f}, over five minutes {five:.1f}): "
            "do not trust the ratios"
        )


def warn_if_full() -> None:
    """Warn if the disk is nearly full: servers then refuse writes, and that looks like a fault of delayq."""
    folder = tempfile.gettempdir()
    if (free := shutil.disk_usage(folder).free) < ROOM:
        progress(
            f"servers keep their files in {folder}, which has {free / 2**30:.1f} GiB left: set TMPDIR to another folder"
        )


class StealMeter:
    """The share of this machine's CPU time that its host gave to other machines since this object was created (proc(5),
    stat).
    """

    def __init__(self, counts: Path = Path("/proc/stat")) -> None:
        self._counts = counts
        self._before = self._read()

    def share(self) -> float:
        """The share between 0 and 1; 0 if the system does not report it."""
        busy, stolen = (after - before for after, before in zip(self._read(), self._before, strict=True))
        return stolen / (busy + stolen) if busy + stolen > 0 else 0.0

    def _read(self) -> tuple[int, int]:
        try:
            words = self._counts.read_text(encoding="ascii").split("\n", 1)[0].split()
        except OSError:
            return 0, 0
        user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, words[1:9])
        return user + nice + system + irq + softirq, stolen


def now() -> float:
    """The current time in Unix ms."""
    return time.time_ns() / 1e6


def wait_for(what: str, ready: Callable[[], bool], *, seconds: float, pause: float = 0.02) -> None:
    """Wait until `ready` returns true, or raise BenchmarkError."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"no {what} within {seconds:.0f} s")
        time.sleep(pause)


def in_turns(
    what: str,
    runs: int,
    measures: Mapping[str, Callable[[], T]],
    *,
    swap: bool = False,
    enough: Callable[[Sequence[dict[str, T]]], bool] = lambda rounds: False,
) -> list[dict[str, T]]:
    """Measure several things in turn, at most `runs` times, so that a slow minute of the machine slows all of them.

    With `swap` every second round has the reverse order, so that a machine that becomes slower or faster favors none.
    """
    rounds: list[dict[str, T]] = []
    for number in range(1, runs + 1):
        found: dict[str, T] = {}
        for name in list(measures)[:: -1 if swap and number % 2 == 0 else 1]:
            progress(f"{what}: {name}, run {number} of {runs}")
            found[name] = measures[name]()
            if isinstance(found[name], float):
                progress(f"{what}: {found[name]:,.0f}")
        rounds.append(found)
        if enough(rounds):
            break
    return rounds


def pairs_of(rounds: Sequence[Mapping[str, float]], limit: str = "limit") -> list[Pair]:
    """Pair delayq with that limit in each round."""
    return [Pair(found["delayq"], found[limit]) for found in rounds]


def sure(least: int) -> Callable[[Sequence[Mapping[str, float]]], bool]:
    """A function that decides whether the rounds are enough: at least `least`, with an error of their ratios of 2 % or less."""

    def enough(rounds: Sequence[Mapping[str, float]]) -> bool:
        ratios = [pair.ratio for pair in pairs_of(rounds)]
        if len(ratios) < max(2, least):
            return False
        return statistics.stdev(ratios) / math.sqrt(len(ratios)) <= SURE * statistics.median(ratios)

    return enough


def in_pairs(
    what: str,
    runs: int,
    limit: Callable[[], float],
    ours: Callable[[], float],
    *,
    swap: bool = False,
    least: int | None = None,
) -> list[Pair]:
    """Measure the limit and delayq in turn like `in_turns`; stop after `least` pairs or more if they are `sure`."""
    enough = sure(least or runs)
    pairs = pairs_of(in_turns(what, runs, {"limit": limit, "delayq": ours}, swap=swap, enough=enough))
    progress(f"{what}: ratios {', '.join(f'{pair.ratio:.2f}' for pair in pairs)}")
    return pairs


class CpuMeter:
    """CPU time of processes, by name, over one or several intervals; the first one starts at once."""

    def __init__(self, **pids: int | None) -> None:
        self._pids = {name: pid for name, pid in pids.items() if pid is not None}
        self._used = dict.fromkeys(self._pids, 0.0)
        self._count = 0
        self.begin()

    def begin(self) -> None:
        """Start an interval."""
        self._start = {name: _cpu_seconds(pid) for name, pid in self._pids.items()}

    def end(self, count: int) -> None:
        """End the interval, in which `count` messages were processed."""
        for name, pid in self._pids.items():
            self._used[name] += _cpu_seconds(pid) - self._start[name]
        self._count += count

    def seconds(self) -> dict[str, float]:
        """The CPU seconds of each process."""
        return dict(self._used)

    def each(self) -> dict[str, float]:
        """The CPU µs a message of each process."""
        return {name: round(1e6 * used / self._count, 3) for name, used in self._used.items()}


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process and all its threads, like /proc/PID/stat but in ns instead of 10 ms."""
    if sys.platform != "linux":
        raise BenchmarkError("the CPU time of other processes can only be read on Linux")
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED) / 1e9


_CPUCLOCK_SCHED: Final = 2  # the kernel's MAKE_PROCESS_CPUCLOCK, as in clock_getcpuclockid(3)


def switches(pid: int) -> int:
    """The number of times that the threads of a process went to sleep: their voluntary context switches."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):  # that thread has ended
            found += int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return found


def rss(pid: int) -> int:
    """The resident bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise BenchmarkError(f"process {pid} is gone")


class RssMeter:
    """The resident bytes of a process: at the start, and the maximum since then."""

    def __init__(self, pid: int) -> None:
        self.before = self.peak = rss(pid)
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.peak = max(self.peak, rss(self._pid))

    @contextmanager
    def watching(self) -> Iterator[RssMeter]:
        """Measure until the end of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._done.set()
            self._thread.join()
