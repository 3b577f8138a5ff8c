"""The parts of `controls` in which messages wait: `holding` (pauses), `topics` (thousands of topics), `limits` and `streams`.

Holding: messages of one topic become due together while it is paused; other topics get 200 a second. The rate at which they
are parked is compared with a drain of as many into the same null target, in turn. The default is 200,000 messages;
`--pending 1000000` makes it a million. Resumed backlogs are compared with others that drain at the same time, slot by slot.

Topics: each of 5,000 topics (`--pending 100000` makes it 100,000) has one message, and one pause holds all of them. The
figures are how long the resume takes to answer, how long the messages take to come back, and how late others are meanwhile.
Then 20,000 topics with one message each drain with a rate for each topic that never binds, and without, slot by slot.

Limits: backlogs drain into Redis Streams and into a null target, with a limit far above their rate and without, slot by
slot. They also drain into the null target with such a `maxInFlight`. Then three workers share a limit and one of them is
killed; the entries of the streams show when each message was sent. Three workers share a small limit, and the figure is the
smallest share of a worker. Finally a worker sends a few messages at a time to a target that takes a while for each.

Streams: 2,000 topics go into Redis Streams with a rate for each topic that never binds, and without, slot by slot. First
single messages arrive, one of a topic every other second, then backlogs drain.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import Scale, in_turns, now, pairs_of, progress, sure, wait_for
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until
from benchmarks.load.messages import QUEUES, TOPICS, make, spread
from benchmarks.load.side import Slot
from benchmarks.load.traffic import Lateness, Plan, Traffic, lateness
from benchmarks.measures.drain import NULL_ROUTES, RATE, backlog
from benchmarks.measures.lateness import OTHERS, OTHERS_RATE, SHORT_DELAYS, TOPIC, WARM_UP_MS
from benchmarks.results import NOTES, Figure, Pair, paired, single
from benchmarks.running.processes import NULL, connect, server, worker
from benchmarks.running.team import Team
from benchmarks.slots import BACKLOG, NULL_BACKLOG, Kind, Side, compared, costs, in_slots, rate, rates
from delayq import Client
from delayq.domain.policies import Policy
from delayq.domain.routes import load_routes
from delayq.store.keys import Layout, ParkedSet
from testbed.zookeeper import ZooKeeperServer

ROUTES: Final = f'[{{"name":"null","match":"{TOPIC}","target":"null:"}},{{"name":"streams"}}]'
#: Messages/s that are parked at least.
SLOWEST: Final = 15_000
RESUMED: Final = Kind("resumed", 2, Slot(100_000, 5_500, drains=True, null=True))
RESUMED_QUICK: Final = Kind("resumed", 1, Slot(30_000, 2_500, drains=True, null=True))

#: Paused topics with one message each, and the goals for s until all are back, by their number, and for others in ms.
PAUSED_TOPICS: Final = 5_000
BACK_GOALS: Final = {5_000: 5.0, 20_000: 60.0}
OTHERS_GOAL_MS: Final = 50
#: From this many paused topics on, a goal holds for the median of the others.
VERY_MANY: Final = 100_000
OTHERS_MEDIAN_MS: Final = 250
#: Topics with a rate that never binds.
MANY_TOPICS: Final = 20_000
EACH: Final = Side(policies=(Policy(name="each", match="*", rate=1_000.0),))

#: The same for fewer topics, message by message and as backlogs.
LIMITED_TOPICS: Final = 2_000
LONE: Final = Slot(1_000, topics=LIMITED_TOPICS)
TOGETHER: Final = Slot(5_000, 3_000, drains=True, topics=LIMITED_TOPICS)

#: Messages a second that nothing here reaches, and more messages at a time than there ever are.
FAR: Final = Policy(name="far", match="*", rate=10_000_000.0)
MANY: Final = Policy(name="many", match="*", max_in_flight=1_000_000)
#: Goals: a limit that does not bind beside none, and the mean rate beside one that binds.
UNBOUND_GOAL: Final = 0.9
BOUND_GOAL: Final = 0.93
#: Messages a second that three workers share, and the seconds of that at full scale.
BOUND: Final = 5_000.0
WORKERS: Final = 3
SECONDS: Final = 200
#: A small rate that three workers share, ms of an interval, and the goal for a worker's share beside an even one.
SMALL: Final = 10.0
INTERVAL: Final = 10_000
SHARE_GOAL: Final = 0.5
#: Messages at a time, ms that each takes, and seconds of that.
FEW: Final = 20
LATENCY: Final = 50
LONG: Final = 20


class Parked(msgspec.Struct, frozen=True):
    """The rate at which messages were parked, and how late others were meanwhile."""

    rate: float
    others: Lateness


def holding(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure a paused topic with many messages."""
    count, pauses = scale.pending or backlog(scale), list[Parked]()
    measures: dict[str, Callable[[], float]] = {
        "limit": partial(_drain, count),
        "delayq": lambda: _park(count, pauses).rate,
    }
    rounds = in_turns("controls, holding", scale.runs, measures, swap=True, enough=sure(scale.runs))
    late = [one.others for one in pauses]
    sides = {"limit": Side(), "held": Side(held=True)}
    back = in_slots(RESUMED_QUICK if scale.quick else RESUMED, sides, scale.runs)
    return [
        paired("parked, beside draining", RATE, pairs_of(rounds), goal=0.5),
        compared(
            "resumed, from 1 s on, beside draining", RATE, _later, back["held"], back["limit"], its=rate, goal=0.9
        ),
        rates("resumed, in all, beside draining", back["held"], back["limit"]),
        single("others while messages are parked, p50", "ms", [one.consumer["p50"] for one in late]),
        single("others while messages are parked, p99", "ms", [one.consumer["p99"] for one in late], goal=50),
        single("others while messages are parked, early", "messages", [one.early for one in late], goal=0),
    ], {"pauses": msgspec.to_builtins(pauses)}


def _later(slot: dict[str, float]) -> float:
    return slot["later"]


def _drain(count: int) -> float:
    with (
        server() as running,
        worker(running.url, NULL, ROUTES),
        closing(Watch(running.url, ())) as watch,
    ):
        moment = in_time(count)
        _schedule(running.url, count, moment, moment)
        sleep_until(moment - 5)
        return count / watch.pool_emptied(count, moment)


def _schedule(url: str, count: int, due: int, by: int) -> None:
    """Schedule with a new client, which reads the current policies."""
    with Client(url) as client:
        schedule_ahead(client, make(count, spread(due, 1), topics=(TOPIC,)), by)


def _others(url: str, start: float, seconds: float) -> Plan:
    return Plan(url, OTHERS, OTHERS_RATE, start, seconds, SHORT_DELAYS)


def _park(count: int, pauses: list[Parked]) -> Parked:
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url, NULL, ROUTES) as process,
        Client(running.url) as operator,
        closing(Watch(running.url, OTHERS)) as watch,
    ):
        operator.pause(TOPIC)
        moment = in_time(count) + WARM_UP_MS
        plan = _others(running.url, moment - WARM_UP_MS, WARM_UP_MS / 1000 + count / SLOWEST)
        _schedule(running.url, count, moment, moment - WARM_UP_MS)
        with Traffic(plan, Path(folder)) as traffic:
            sleep_until(moment - 5)
            name = ParkedSet.of_topic(TOPIC)
            wait_for(
                f"{count:,} parked messages",
                lambda: watch.parked(name) >= count,
                seconds=30 + count / 5_000,
                pause=0.02,
            )
            end = now()
            arrived, _ = traffic.wait()
        others = [one for one in arrived if moment <= one.due <= end]
        process.check()
    one = Parked(1000 * count / (end - moment), lateness(others))
    pauses.append(one)
    return one


class Back(msgspec.Struct, frozen=True):
    """The seconds until `resume` answered and until all paused topics are back, and how late others were meanwhile."""

    answered: float
    seconds: float
    others: Lateness


def topics(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure one pause of many topics, and a rate for each of many topics."""
    count = scale.pending or PAUSED_TOPICS
    back = [_back(count, number) for number in range(1, scale.runs + 1)]
    late = [one.others for one in back]
    name = f"{count:,} paused topics"
    median_goal, tail_goal = (OTHERS_MEDIAN_MS, None) if count >= VERY_MANY else (None, OTHERS_GOAL_MS)
    figures = [
        single(f"{name}, the resume answers", "s", [one.answered for one in back]),
        single(f"{name}, all are back", "s", [one.seconds for one in back], goal=BACK_GOALS.get(count)),
        single(f"{name}, others meanwhile, p50", "ms", [one.consumer["p50"] for one in late], goal=median_goal),
        single(f"{name}, others meanwhile, p99", "ms", [one.consumer["p99"] for one in late], goal=tail_goal),
        single(f"{name}, others meanwhile, early", "messages", [one.early for one in late], goal=0),
    ]
    many = MANY_TOPICS // 4 if scale.quick else MANY_TOPICS
    for where, null in (("into Redis Streams", False), ("into a null target", True)):
        slot = Slot(many, 5_000, drains=True, null=null, topics=many)
        kind = Kind(f"{many:,} topics drained {where} under a rate for each that does not bind, beside none", 2, slot)
        found = in_slots(kind, {"limit": Side(), "set": EACH}, scale.runs)
        figures.append(rates(kind.name, found["set"], found["limit"], goal=UNBOUND_GOAL))
        figures.append(costs(kind.name, found["set"], found["limit"]))
    note = f"One pause held {count:,} topics; `--pending` sets another number."
    return figures, {"paused topics": msgspec.to_builtins(back), NOTES: [note]}


def _back(count: int, number: int) -> Back:
    """Hold one message of each topic, resume all of them, and read from the streams when each one arrived."""
    progress(f"controls, topics: {count:,} paused topics, run {number}")
    names = tuple(f"held.{topic}" for topic in range(count))
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url) as process,
        Client(running.url) as operator,
        closing(Watch(running.url, names)) as watch,
    ):
        operator.pause("held.*")
        moment = in_time(count)
        with Client(running.url) as client:
            for first in range(0, count, 1_000):
                some = names[first : first + 1_000]
                one_each = (
                    msgspec.structs.replace(message, topic=topic)
                    for topic, message in zip(some, make(len(some), spread(moment, 1), seed=first), strict=True)
                )
                schedule_ahead(client, one_each, moment)
        sleep_until(moment)
        wait_for(f"{count:,} parked topics", lambda: watch.queued() == 0, seconds=60 + count / 200, pause=0.1)
        with Traffic(_others(running.url, 0, 4 + count / 500), Path(folder)) as traffic:
            sleep_until(traffic.plan.start + WARM_UP_MS)
            began = now()
            held = operator.resume("held.*").held
            answered = (now() - began) / 1_000
            arrived, _ = traffic.wait()
        if held != count:
            raise BenchmarkError(f"{held:,} of {count:,} messages were counted")
        wait_for(f"{count:,} resumed topics", lambda: watch.pending() == 0, seconds=60 + count / 100, pause=0.2)
        end = began + 1_000 * watch.streams_filled(count, int(began))
        process.check()
        others = [one for one in arrived if began <= one.due <= end]
    return Back(answered, (end - began) / 1_000, lateness(others))


def limits(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure limits that do not bind, and limits that do."""
    figures: list[Figure] = []
    for name, null, policy in (
        ("into Redis Streams under a rate", False, FAR),
        ("into a null target under a rate", True, FAR),
        ("into a null target under a maxInFlight", True, MANY),
    ):
        kind = Kind(f"drained {name} that does not bind, beside none", 6, NULL_BACKLOG if null else BACKLOG)
        found = in_slots(kind, {"limit": Side(), "set": Side(policies=(policy,))}, scale.runs)
        figures.append(rates(kind.name, found["set"], found["limit"], goal=UNBOUND_GOAL))
    mean, busiest = _bound(min(scale.messages, int(BOUND) * SECONDS))
    least = _least_share(30 if scale.quick else 60)
    ideal = FEW * 1_000 / LATENCY
    sent = [_few_at_a_time(int(ideal) * LONG) for _ in range(scale.runs)]
    return [
        *figures,
        single(
            "under a limit, three workers, one killed: mean beside the rate",
            "of it",
            [mean],
            goal=BOUND_GOAL,
            at_most=False,
        ),
        single("under a limit, the busiest second beside rate and burst", "of them", [busiest], goal=1.0),
        single(
            f"under a limit of {SMALL:g}/s, the smallest share of a worker in {INTERVAL // 1_000} s, beside an even one",
            "of it",
            [least],
            goal=SHARE_GOAL,
            at_most=False,
        ),
        paired(
            f"{FEW} at a time to a target that takes {LATENCY} ms, beside so many divided by that",
            RATE,
            [Pair(rate, ideal) for rate in sent],
            goal=0.9,
        ),
    ], {}


def streams(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure many limited topics of streams whose rates do not bind."""
    figures: list[Figure] = []
    for how, slots, slot in (("delivered at 1,000/s", 10, LONE), ("drained", 6, TOGETHER)):
        name = (
            f"{LIMITED_TOPICS:,} topics {how} into Redis Streams under a rate for each that does not bind, beside none"
        )
        kind = Kind(name, -(-slots // 4) if scale.quick else slots, slot)
        found = in_slots(kind, {"limit": Side(), "set": EACH}, scale.runs)
        figures += [rates(name, found["set"], found["limit"])] if slot.drains else []
        figures.append(costs(name, found["set"], found["limit"]))
    return figures, {}


def _few_at_a_time(count: int) -> float:
    """The messages/s to a slow target, with one `maxInFlight` for all topics together."""
    routes = NULL_ROUTES.replace("null:", f"null:{LATENCY}")
    with (
        server() as running,
        worker(running.url, NULL, routes, DELAYQ_SENDERS=str(2 * FEW)),
        Client(running.url, routes=load_routes(routes)) as client,
        closing(Watch(running.url)) as watch,
    ):
        client.put_policy(Policy(name="few", match="*", max_in_flight=FEW, per="policy"))
        moment = in_time(count)
        with Client(running.url) as scheduling:
            schedule_ahead(scheduling, make(count, spread(moment, 1)), moment)
        return count / watch.pool_emptied(count, moment)


@contextmanager
def _shared(per_second: float, count: int) -> Iterator[tuple[Team, Watch, str, int]]:
    """Three workers with one rate for all topics, and a backlog; its due time is the last value."""
    with ExitStack() as stack:
        running = stack.enter_context(server())
        team = stack.enter_context(Team(running.url, stack.enter_context(ZooKeeperServer()).hosts, WORKERS))
        watch = stack.enter_context(closing(Watch(running.url)))
        with Client(running.url) as client:
            client.put_policy(Policy(name="slow", match="*", rate=per_second, per="policy"))
        moment = in_time(count)
        with Client(running.url) as client:
            together = max(1, min(500, count // (8 * QUEUES)))  # few enough that every queue gets some calls
            for first in range(0, count, together):
                some = make(min(together, count - first), spread(moment, 1), seed=first)
                schedule_ahead(client, some, moment)
        yield team, watch, running.url, moment


def _bound(count: int) -> tuple[float, float]:
    """The mean divided by the rate, without the first burst; the busiest second divided by the allowed number."""
    with _shared(BOUND, count) as (team, watch, url, moment):
        sleep_until(moment + count / BOUND * 300)
        team.kill(team.names[-1])
        watch.streams_filled(count, moment)
        times = [at for at, _ in _sent(url)]
    later = bisect_right(times, times[0] + 100)
    mean = (len(times) - later) / (times[-1] - times[0] - 100) * 1_000 / BOUND
    busiest = max(bisect_right(times, first + 999) - place for place, first in enumerate(times))
    return mean, busiest / (2 * BOUND)


def _least_share(seconds: int) -> float:
    """The smallest share of a worker with a backlog, divided by an even share."""
    count = int(SMALL) * seconds * 2  # so that every worker has a backlog at the end, too
    layout = Layout(QUEUES)
    with _shared(SMALL, count) as (team, _, url, moment):
        sleep_until(moment + 1_000 * seconds)
        owned = [team.queues_of(name) for name in team.names]
        sent = [(at, layout.queue_of(id)) for at, id in _sent(url)]
    starts = range(moment + 1_000, moment + 1_000 * seconds - INTERVAL, 1_000)
    return least_sent(sent, owned, starts) / (SMALL * INTERVAL / 1_000 / WORKERS)


def least_sent(sent: Sequence[tuple[int, int]], owned: Sequence[set[int]], starts: Sequence[int]) -> int:
    """The smallest number of messages that an owner sent in an interval; `sent` has the time and queue of each message."""
    times = [sorted(at for at, queue in sent if queue in queues) for queues in owned]
    return min(bisect_left(own, start + INTERVAL) - bisect_left(own, start) for own in times for start in starts)


def _sent(url: str) -> list[tuple[int, str]]:
    """When each message was appended to its stream (Unix ms), and its id, in order."""
    with closing(connect(url)) as redis:
        return sorted(
            (int(entry.partition(b"-")[0]), fields[b"id"].decode())
            for topic in TOPICS
            for entry, fields in redis.xrange(topic)
        )
