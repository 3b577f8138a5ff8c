"""Limits: what one costs that does not bind, and how near the rate comes where it does.

Backlogs drain into Redis Streams, and into a null target, with a limit that is far above and with none, slot by slot; and into
the null target with a `maxInFlight` that is. Then three workers go by a limit, one of which is killed: the entries of the stream
tell when each message went. At last a worker sends few at a time to a target that takes a while for each.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import ExitStack, closing
from typing import Any, Final

from benchmarks.harness import Scale
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until
from benchmarks.load.messages import TOPICS, make, spread
from benchmarks.measures.drain import NULL_ROUTES, RATE
from benchmarks.results import Figure, Pair, paired, single
from benchmarks.running.processes import connect, server, worker
from benchmarks.running.team import Team
from benchmarks.slots import BACKLOG, NULL_BACKLOG, Kind, Side, in_slots, rates
from delayq import Client
from delayq.policies import Policy
from delayq.routes import load_routes
from testbed.zookeeper import ZooKeeperServer

__all__ = ["run"]

MODULE: Final = "benchmarks.running.worker_with_null"
#: Messages a second that nothing here drains, and as many at a time as there never are.
FAR: Final = Policy(name="far", match="*", rate=10_000_000.0)
MANY: Final = Policy(name="many", match="*", max_in_flight=1_000_000)
#: Messages a second that three workers go by.
BOUND: Final = 5_000.0
WORKERS: Final = 3
#: Seconds of the bound limit at the full scale.
SECONDS: Final = 200
#: So many are sent at a time, each for so many ms, for so many seconds.
FEW: Final = 20
LATENCY: Final = 50
LONG: Final = 20


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure limits."""
    figures: list[Figure] = []
    for name, null, policy in (
        ("into Redis Streams under a rate", False, FAR),
        ("into a null target under a rate", True, FAR),
        ("into a null target under a maxInFlight", True, MANY),
    ):
        kind = Kind(f"drained {name} that does not bind, beside none", 6, NULL_BACKLOG if null else BACKLOG)
        found = in_slots(kind, {"limit": Side(), "set": Side(policies=(policy,))}, scale.runs)
        figures.append(rates(kind.name, found["set"], found["limit"], goal=0.95))
    mean, busiest = _bound(min(scale.messages, int(BOUND) * SECONDS))
    reckoned = FEW * 1_000 / LATENCY
    sent = [_few_at_a_time(int(reckoned) * LONG) for _ in range(scale.runs)]
    return [
        *figures,
        single(
            "under a limit, three workers, one killed: mean beside the rate", "of it", [mean], goal=0.97, at_most=False
        ),
        single("under a limit, the busiest second beside rate and burst", "of them", [busiest], goal=1.0),
        paired(
            f"{FEW} at a time to a target that takes {LATENCY} ms, beside so many divided by that",
            RATE,
            [Pair(rate, reckoned) for rate in sent],
            goal=0.9,
        ),
    ], {}


def _few_at_a_time(count: int) -> float:
    """Messages a second to a target that takes its time, of all topics together so many at a time."""
    routes = NULL_ROUTES.replace("null:", f"null:{LATENCY}")
    with (
        server() as running,
        worker(running.url, MODULE, routes, DELAYQ_FORWARDERS=str(2 * FEW)),
        Client(running.url, routes=load_routes(routes)) as client,
        closing(Watch(running.url)) as watch,
    ):
        client.put_policy(Policy(name="few", match="*", max_in_flight=FEW, per="policy"))
        moment = in_time(count)
        with Client(running.url) as scheduling:
            schedule_ahead(scheduling, make(count, spread(moment, 1)), moment)
        return count / watch.pool_emptied(count, moment)


def _bound(count: int) -> tuple[float, float]:
    """The mean beside the rate, without the first burst; and the busiest second beside what is allowed."""
    with ExitStack() as stack:
        running = stack.enter_context(server())
        team = stack.enter_context(Team(running.url, stack.enter_context(ZooKeeperServer()).hosts, WORKERS))
        watch = stack.enter_context(closing(Watch(running.url)))
        with Client(running.url) as client:
            client.put_policy(Policy(name="slow", match="*", rate=BOUND, per="policy"))
        moment = in_time(count)
        with Client(running.url) as client:
            schedule_ahead(client, make(count, spread(moment, 1)), moment)
        sleep_until(moment + count / BOUND * 300)
        team.kill(team.names[-1])
        watch.streams_filled(count, moment)
        redis = stack.enter_context(closing(connect(running.url)))
        times = sorted(int(entry.partition(b"-")[0]) for topic in TOPICS for entry, _ in redis.xrange(topic))
    later = bisect_right(times, times[0] + 100)
    mean = (len(times) - later) / (times[-1] - times[0] - 100) * 1_000 / BOUND
    busiest = max(bisect_right(times, first + 999) - place for place, first in enumerate(times))
    return mean, busiest / (2 * BOUND)
