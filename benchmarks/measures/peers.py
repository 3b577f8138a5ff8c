"""delayq compared with other delay queues: asynq and beanstalkd, each as far as this machine has its toolchain.

A limit is the peer's figure, measured in turn with delayq on the same cores. A rate is better with a ratio above 1.
Lateness, CPU and memory are better with a ratio below 1. Each peer has its own client in its own language, configured by its
documentation:

- asynq (Go) shares one client, has 64 workers, and polls for due messages every 100 ms (by default 5 s).
- beanstalkd, with its Go client, has a connection for each caller and 16 connections that reserve.

asynq has the same server as delayq, with AOF (everysec); beanstalkd has its log with an fsync a second.

- One by one: each message with a call that waits for its answer.
- 64 at once: 64 callers in one process.
- Drain: a backlog becomes due at one moment, and is consumed and acknowledged; for delayq by its Python consumer.
- At 1,000/s: an open loop with delays of 1, 2 or 3 s. *With slack* the route of delayq lets messages be 50 ms late. asynq polls
  every 100 ms, so its messages are that late on average.

Lateness is measured at the consumer, and CPU without the producer. Memory is
the growth of the server's resident memory for each pending message.

Differences: asynq and beanstalkd have whole seconds, so they keep no order by ms. A time of asynq loses its fraction, so a
message is delivered up to one second early. The server of beanstalkd is one process in C with messages in its own memory.
It cannot find or cancel a message by key, delay it twice, or fail over. The peers' clients are compiled; delayq's
is Python.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from benchmarks import BenchmarkError, TooLate
from benchmarks.harness import CpuMeter, Scale, in_turns, now, progress, rss
from benchmarks.peers import OURS, PEERS, SLACK, WITH_SLACK, Peer, result_of
from benchmarks.results import LEFT_OUT, NOTES, Figure, Pair, paired
from testbed.errors import ServerMissing

CALLERS: Final = 64
RATE: Final = 1_000
#: s until as many messages are delivered as scheduled.
STEADY: Final = 4.5
#: Messages a second that every peer can schedule with 64 callers.
PACE: Final = 4_000
SPARE_MS: Final = 4_000
#: The CPU with slack, and the peer with which it is compared.
SLACKED: Final = f"CPU with a slack of {SLACK} ms"
SLOW: Final = "asynq"
#: Goals of the ratios, by figure and peer.
GOALS: Final = {
    ("one by one", "asynq"): 0.7,
    ("64 at once", "asynq"): 1.2,
    ("drain", "beanstalkd"): 1.0,
    ("lateness p50", "beanstalkd"): 1.0,
    ("lateness p99", "beanstalkd"): 1.0,
    ("CPU", "asynq"): 1.5,
    (SLACKED, "asynq"): 1.5,
}
#: Each figure with its unit, and whether less is better.
KINDS: Final = {
    "one by one": ("messages/s", False),
    "64 at once": ("messages/s", False),
    "drain": ("messages/s", False),
    "lateness p50": ("ms", True),
    "lateness p99": ("ms", True),
    "CPU": ("µs a message", True),
    SLACKED: ("µs a message", True),
    "memory": ("B a message", True),
}


#: Measured values by figure.
Found = dict[str, float]


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure delayq and every installed peer; raises ServerMissing if there is none."""
    peers, left_out = [OURS], {}
    for name, find in PEERS.items():
        try:
            peers.append(find())
        except ServerMissing as error:
            progress(f"{name} is left out: {error}")
            left_out[name] = str(error)
    if len(peers) == 1:
        raise ServerMissing(next(iter(left_out.values())))
    measures: dict[str, Callable[[Peer], Found]] = {
        "one by one": partial(_one_by_one, 1_000 if scale.quick else 3_000),
        "at once": partial(_at_once, 10_000 if scale.quick else 20_000),
        "drain": partial(_drain, 10_000 if scale.quick else 15_000),
        "steady": partial(_steady, 3.0 if scale.quick else 5.0),
    }
    if scale.part not in ("", *measures):
        raise BenchmarkError(f"the parts of peers are {', '.join(measures)}")
    if scale.part:
        measures = {scale.part: measures[scale.part]}
    rounds: list[dict[str, Found]] = [{} for _ in range(scale.runs)]
    for what, measure in measures.items():
        turns = {peer.name: partial(measure, peer) for peer in peers}
        for merged, found in zip(rounds, in_turns(f"peers, {what}", scale.runs, turns, swap=True), strict=True):
            for name, one in found.items():
                merged.setdefault(name, {}).update(one)
    figures = list(figures_of(rounds))
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers[1:])
    notes = [f"Peers: {versions}.", *_early(rounds)]
    return figures, {LEFT_OUT: left_out, NOTES: notes, "rounds": rounds}


def figures_of(rounds: Sequence[dict[str, Found]]) -> Iterator[Figure]:
    """Yield each figure of delayq beside that of each peer."""
    for kind, (unit, less) in KINDS.items():
        for peer in rounds[0]:
            if peer == OURS.name or kind not in rounds[0][peer]:
                continue
            pairs = [Pair(found[OURS.name][kind], found[peer][kind]) for found in rounds]
            if min(pair.limit for pair in pairs) <= 0:  # early messages have a negative lateness, which gives no ratio
                continue
            yield paired(f"{kind}, beside {peer}", unit, pairs, goal=GOALS.get((kind, peer)), at_most=less)


def _early(rounds: Sequence[dict[str, Found]]) -> Iterator[str]:
    for peer in rounds[0]:
        if share := statistics.median(found[peer].get("early", 0) for found in rounds):
            yield f"{peer} delivered {share:.0%} of the messages at {RATE:,}/s early."


def _one_by_one(count: int, peer: Peer) -> Found:
    with peer.serving() as serving:
        return {"one by one": peer.do("schedule", serving, count, 1)["rate"]}


def _at_once(count: int, peer: Peer) -> Found:
    with peer.serving() as serving:
        peer.do("schedule", serving, 1_000, CALLERS)
        before = rss(serving.server)
        found = {"64 at once": peer.do("schedule", serving, count, CALLERS)["rate"]}
        time.sleep(1.5)  # until the buffers of the log are written
        found["memory"] = (rss(serving.server) - before) / count
        return found


def whole_second(moment: float) -> int:
    """The next whole second, so that no peer cuts a due time off."""
    return 1_000 * math.ceil(moment / 1_000)


def _drain(count: int, peer: Peer) -> Found:
    with peer.serving() as serving:
        moment = whole_second(now() + 1_000 * count / PACE + SPARE_MS)
        peer.do("backlog", serving, count, moment)
        if now() > moment - SPARE_MS / 2:
            raise TooLate(f"{peer.name} took longer than expected to schedule; is the machine busy?")
        return {"drain": count / peer.do("consume", serving, count, moment + peer.slack)["seconds"]}


def _steady(seconds: float, peer: Peer) -> Found:
    found = _at_a_rate(seconds, peer)
    if peer is OURS:
        found[SLACKED] = _at_a_rate(seconds, WITH_SLACK)["CPU"]
    elif peer.name == SLOW:
        found[SLACKED] = found["CPU"]
    return found


def _at_a_rate(seconds: float, peer: Peer) -> Found:
    count = int(RATE * (STEADY + seconds + 1))
    with peer.serving() as serving, peer.doing("consume", serving, count, now()) as consumer:
        time.sleep(1.5)  # until the consumer is ready
        with peer.doing("produce", serving, count, RATE) as producer:
            time.sleep(STEADY)
            began = time.monotonic()
            meter = CpuMeter(server=serving.server, consumer=consumer.pid, **serving.others)
            time.sleep(seconds)
            meter.end(int(RATE * (time.monotonic() - began)))
            producer.wait(30)
        consumer.wait(30)
        found = result_of(consumer)
    cpu = meter.each()
    progress(f"peers: {peer.name} at {RATE:,}/s: {cpu}, {found}")
    return {
        "CPU": sum(cpu.values()),
        "lateness p50": found["p50"],
        "lateness p99": found["p99"],
        "early": found["early"] / count,
    }
