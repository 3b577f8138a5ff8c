"""What a message costs that comes alone: the phases, the bare client it is set beside, and the counts."""

from __future__ import annotations

import hashlib
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import hiredis
import msgspec
import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, in_turns, now, switches, wait_for
from benchmarks.load import bare_client
from benchmarks.load.backlog import Watch
from benchmarks.load.bare_client import Packet
from benchmarks.load.handshake import Handshake
from benchmarks.load.messages import make, spread
from benchmarks.measures import steady
from benchmarks.measures.steady import APART, BARE, BEFORE, MINIMAL, Cost, Meter, Phase, plan, reckoning
from benchmarks.results import Figure, single
from benchmarks.running import limit
from benchmarks.running.processes import connect, python, server
from delayq.store.keys import queue_keys

FIRST = 1_800_000_000_000


def test_phases_follow_one_another_and_have_their_rates() -> None:
    some, messages = plan((100, 1_000), 2, 60_000)
    assert [phase.rate for phase in some] == [100, 1_000]
    assert some[1].start == some[0].end + APART
    dues = [message.expect_date or 0 for message in messages]
    assert len(dues) == 1_100 * (BEFORE + 2_000) // 1_000
    assert dues != sorted(dues)
    assert some[1].counted(dues) == pytest.approx(2_000, rel=0.1)


def test_what_falls_due_in_the_warm_up_does_not_count() -> None:
    phase = Phase(10, FIRST, FIRST + BEFORE + 1_000)
    assert phase.counted([FIRST, phase.first - 1, phase.first, phase.end - 1, phase.end]) == 2


def test_a_packet_has_all_that_falls_due_in_one_ms(tmp_path: Path) -> None:
    messages = list(make(200, spread(FIRST, 50)))
    placed = limit.write_schedule(tmp_path / "load", messages, run=7)
    assert len({queue for queue, _ in placed}) > 1
    packets = msgspec.msgpack.decode(bare_client.plain(messages, placed), type=list[Packet])
    counts = Counter(message.expect_date for message in messages)
    assert [(packet.due, packet.replies // 4) for packet in packets] == sorted(counts.items())
    for packet in packets:
        reader = hiredis.Reader()
        reader.feed(packet.commands)
        assert len(list(iter(reader.gets, False))) == packet.replies


def test_the_minimal_script_moves_what_is_due_and_nothing_else_by_six_calls(tmp_path: Path) -> None:
    due = list(make(40, spread(int(now()) - 60, 50)))
    later = list(make(10, spread(int(now()) + 60_000, 50), seed=2))
    placed = limit.write_schedule(tmp_path / "load", due + later, run=5)
    packets = msgspec.msgpack.decode(bare_client.by_script(due, placed), type=list[Packet])
    with server() as running, closing(connect(running.url)) as connection, closing(Watch(running.url)) as watch:
        limit.feed(running.port, tmp_path / "load", 100)
        connection.script_load(bare_client.SCRIPT)
        with socket.create_connection(("127.0.0.1", running.port)) as opened:
            bare_client.deliver(opened, packets)
        assert (watch.appended(), watch.pending()) == (40, 10)
        (_, fields), *_ = connection.xrange(due[0].topic)
        assert fields[b"record"].startswith(b"0000001")
        names = queue_keys(placed[-1][0])
        connection.zadd(names.queue, {placed[-1][1]: 1})
        connection.config_resetstat()
        assert connection.evalsha(hashlib.sha1(bare_client.SCRIPT).hexdigest(), 2, names.queue, names.pool) == 1
        calls = connection.info("commandstats")
    made = {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in calls.items()}
    assert {name: made[name] for name in ("time", "zrange", "hmget", "xadd", "zrem", "hdel")} == dict.fromkeys(
        ("time", "zrange", "hmget", "xadd", "zrem", "hdel"), 1
    )


def test_a_process_is_told_what_to_do_when_it_is_there(tmp_path: Path) -> None:
    here, there = Handshake(tmp_path / "a plan.x"), Handshake(tmp_path / "a plan.y")
    words = "import sys, pathlib; from benchmarks.load.handshake import Handshake; "
    words += "print(Handshake(pathlib.Path(sys.argv[1])).wait())"
    with python("-c", words, here.argument) as process:
        wait_for("a process", here.ready, seconds=30)
        assert not there.ready()
        here.tell(b"this")
        process.wait(30)
        assert process.said() == "b'this'"


def test_the_reckoning_says_where_the_microseconds_are() -> None:
    costs = {BARE: (6.0, 10.0), MINIMAL: (7.0, 21.0), "into a stream": (60.0, 50.0)}
    round = {
        name: {
            1_000: Cost(dict(zip(("worker" if name == "into a stream" else "client", "Redis"), cpu, strict=True)), {})
        }
        for name, cpu in costs.items()
    }
    told = reckoning([round], 1_000)
    assert "6 + 10 = 16 µs" in told
    assert "of the 94 µs more than the bare client, one script for what is due takes 12" in told
    assert "53 in the worker and 29 in Redis" in told


class Answers:
    """A connection that answers each packet at once, or with an error; `sent` has when what was sent."""

    def __init__(self, answer: bytes = b":1\r\n", slow: float = 0) -> None:
        self.sent: list[tuple[float, bytes]] = []
        self._answer, self._slow, self._left = answer, slow, b""

    def sendall(self, data: bytes) -> None:
        self.sent.append((now(), data))
        self._left += self._answer * data.count(b"*")

    def recv(self, size: int) -> bytes:
        time.sleep(self._slow)
        chunk, self._left = self._left[:size], self._left[size:]
        return chunk


def deliver(connection: Any, packets: Sequence[Packet]) -> None:
    bare_client.deliver(connection, packets)


def test_the_bare_client_is_never_early_and_takes_along_what_became_due() -> None:
    start = int(now()) + 30
    packets = [Packet(start + 10 * place, b"*%d" % place, 1) for place in range(4)]
    slow = Answers(slow=0.015)
    deliver(slow, packets)
    assert b"".join(data for _, data in slow.sent) == b"*0*1*2*3"
    assert len(slow.sent) < 4
    for at, data in slow.sent:
        assert at >= packets[int(data[-1:])].due


@pytest.mark.parametrize("answer", [b"-ERR no\r\n", b""])
def test_the_bare_client_overlooks_no_error(answer: bytes) -> None:
    with pytest.raises(BenchmarkError):
        deliver(Answers(answer), [Packet(0, b"*1", 1)])


def test_what_is_measured_in_turns_is_told_by_name() -> None:
    calls: list[str] = []

    def measure(name: str) -> int:
        calls.append(name)
        return len(calls)

    found = in_turns("x", 2, {name: partial(measure, name) for name in "abc"}, swap=True)
    assert calls == ["a", "b", "c", "c", "b", "a"]
    assert found == [{"a": 1, "b": 2, "c": 3}, {"a": 6, "b": 5, "c": 4}]


def test_a_figure_tells_its_parts() -> None:
    figure = single("sum", "µs", [3, 5], parts=[{"one": 1, "two": 2}, {"one": 2, "two": 3}])
    assert figure.line() == "sum: 4 µs (one 1.5, two 2.5)"


def test_the_meter_counts_commands_scripts_and_sleeps() -> None:
    with (
        server() as running,
        python("-c", "import time\nwhile True: time.sleep(0.01)") as sleeper,
        closing(connect(running.url)) as connection,
    ):
        script = connection.script_load("return redis.call('PING')")
        meter = Meter(running.url, running.pid, worker=sleeper.pid)
        before = switches(sleeper.pid)
        meter.begin()
        for _ in range(10):
            connection.evalsha(script, 0)
        connection.ping()
        while switches(sleeper.pid) < before + 20:
            time.sleep(0.01)
        cost = meter.end(10)
    assert cost.cpu.keys() == {"worker", "Redis"}
    assert cost.more["EVALSHA"] == 1
    assert cost.more["EVALSHA µs"] > 0
    assert cost.more["commands"] == 2.1
    assert cost.more["sleeps"] >= 2
    assert cost.both == sum(cost.cpu.values())


def test_all_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "RATES", (50, 1_000))
    for name, patient in {"PACE": 1_000, "BARE_PACE": 1_000}.items():  # beside other tests
        monkeypatch.setattr(steady, name, patient)
    figures, details = steady.run(Scale(True))
    by_name: dict[str, Figure] = {figure.name: figure for figure in figures}
    assert by_name["delivery into a stream at 1,000/s, beside the bare client"].ratio
    assert by_name["delivery into a stream at 1,000/s, beside the minimal script"].ratio
    assert details["notes"][0].startswith("At 1,000/s a message costs the bare client and Redis ")
    assert by_name["delivery through the general path into a null target at 1,000/s"].goal == 400
    assert by_name["delivery into a stream at 1,000/s, with slack 50 ms"].goal == 100
    assert by_name["all traffic at 50/s"].parts.keys() >= {"worker", "Redis", "sleeps", "EVALSHA", "EVALSHA µs"}
    assert all(figure.value == 0 for name, figure in by_name.items() if name.endswith("early"))
    assert len(details["rounds"]) == 1
