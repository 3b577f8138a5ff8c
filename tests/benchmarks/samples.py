"""Results to render and compare."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import NAMES, Environment, Figure, Pair, Result, paired, single

ENVIRONMENT = Environment(
    cpu="A processor",
    cores=2,
    memory="8 GiB",
    kernel="Linux 6.1",
    python="3.11.9",
    redis_py="8.1.0",
    server="valkey 9.1.2",
    allocator="libc",
    commit="0123456789ab",
)


def result(name: str, figures: Sequence[Figure], *, quick: bool = False) -> Result:
    """A result as a benchmark gives it."""
    return Result(name=name, quick=quick, messages=1_000_000, environment=ENVIRONMENT, figures=list(figures))


def all_results() -> list[Result]:
    """One of each benchmark; schedule reaches its goal, drain misses it."""
    figures = {name: [single("figure", "ms", [1.0, 2.0, 3.0])] for name in NAMES}
    figures["schedule"] = [paired("plain", "messages/s", [Pair(190_000, 200_000)] * 3, goal=0.9)]
    figures["drain"] = [paired("into streams", "messages/s", [Pair(80_000, 160_000)], goal=1.1)]
    figures["lateness"] = [
        single(f"at {rate}/s, {what}", "ms", [value], goal=goal)
        for rate in ("1,000", "5,000")
        for what, value, goal in (("p50", 0.6, 1.0), ("p99", 4.0, 5.0), ("max", 9.0, None))
    ]
    figures["footprint"] = [single("Valkey, a message beyond its record", "B", [170.0], goal=185)]
    figures["failover"] = [single("node killed, all its queues deliver again", "s", [4.0], goal=5)]
    figures["scale"] = [single("2 nodes, drained", "messages/s", [90_000.0])]
    return [result(name, figures[name]) for name in NAMES]
