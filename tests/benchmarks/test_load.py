"""What is sent: messages, the limit's commands, the producer's plan, HTTP requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import hiredis
import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.load import http_load
from benchmarks.load.http_load import Load, paced, read_wrk, send
from benchmarks.load.messages import BODY_BYTES, DAY, QUEUES, make, spread
from benchmarks.load.producer import Plan, batches
from benchmarks.running import limit
from delayq.codec import Record
from delayq.store.keys import Layout

FIRST = 1_800_000_000_000


def commands(path: Path) -> list[list[bytes]]:
    reader = hiredis.Reader()
    reader.feed(path.read_bytes())
    return list(iter(reader.gets, False))


def test_messages_have_varied_bodies_of_one_size_and_dues_within_the_span() -> None:
    messages = list(make(500, spread(FIRST, DAY), keys=1))
    assert {len(message.body.encode()) for message in messages} == {BODY_BYTES}
    assert len({message.body for message in messages}) == 500
    assert all(FIRST <= (message.expect_date or 0) < FIRST + DAY for message in messages)
    assert len({message.topic for message in messages}) > 1
    assert all(len(message.keys) == 1 for message in messages)


def test_the_same_arguments_make_the_same_messages() -> None:
    one, same, other = (list(make(20, spread(FIRST, DAY), seed=seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize("keys", [0, 1])
def test_the_limit_schedules_each_message_with_the_fewest_commands(tmp_path: Path, keys: int) -> None:
    messages = list(make(10, spread(FIRST, DAY), keys=keys))
    placed = limit.write_schedule(tmp_path / "commands", messages)
    sent = commands(tmp_path / "commands")
    assert [words[0] for words in sent] == [b"HSET", b"ZADD", *[b"ZADD"] * keys] * 10
    for message, (queue, id), words in zip(messages, placed, sent[:: 2 + keys], strict=True):
        assert words[:3] == [b"HSET", b"delayq:{%d}:pool" % queue, id]
        assert Layout(QUEUES).queue_of(id.decode()) == queue
        assert Record(words[3]).payload == str(message.body).encode()
        assert Record(words[3]).asked == message.expect_date


@pytest.mark.parametrize("keys", [0, 1])
def test_the_limit_drains_each_queue_by_due(tmp_path: Path, keys: int) -> None:
    messages = list(make(2500, spread(FIRST, DAY), keys=keys))
    placed = limit.write_schedule(tmp_path / "load", messages)
    replies = limit.write_drain(tmp_path / "drain", messages, placed)
    sent = commands(tmp_path / "drain")
    assert len(sent) == replies == 2500 * (4 + keys)
    assert [words[0] for words in sent[: 4 + keys]] == [b"HGET", b"XADD", b"ZREM", b"HDEL", *[b"ZREM"] * keys]
    dues: dict[bytes, list[int]] = {}
    for got, added in zip(sent[:: 4 + keys], sent[1 :: 4 + keys], strict=True):
        dues.setdefault(got[1], []).append(int(added[added.index(b"due") + 1]))
    assert all(one == sorted(one) for one in dues.values())
    assert {id for _, id in placed} == {words[2] for words in sent[:: 4 + keys]}


@pytest.mark.parametrize("keys", [0, 1])
def test_the_limit_in_batches_has_a_command_of_each_message_only_to_append(tmp_path: Path, keys: int) -> None:
    messages = list(make(2500, spread(FIRST, DAY), keys=keys))
    placed = limit.write_schedule(tmp_path / "load", messages)
    replies = limit.write_batches(tmp_path / "batches", messages, placed)
    sent = commands(tmp_path / "batches")
    assert len(sent) == replies
    names = [words[0] for words in sent]
    batch = [b"HMGET", *[b"XADD"] * 200, b"ZREMRANGEBYRANK", b"HDEL", *[b"ZREM"] * keys]
    assert names[: len(batch)] == batch
    assert names.count(b"XADD") == 2500
    read = [id for words in sent if words[0] == b"HMGET" for id in words[2:]]
    assert sorted(read) == sorted(id for _, id in placed)
    assert read == [words[words.index(b"id") + 1] for words in sent if words[0] == b"XADD"]


def test_a_producers_dues_go_by_its_plan_and_it_sends_them_all() -> None:
    plan = Plan("redis://x", ("a", "b"), 1000, 5_000, 2, (100, 200))
    planned = list(batches(plan))
    assert sum(len(messages) for _, messages in planned) == plan.count == 2000
    for moment, messages in planned:
        assert all(moment + 100 <= (message.expect_date or 0) <= moment + 200 for message in messages)
        assert {message.topic for message in messages} <= {"a", "b"}


def test_wrks_rate_is_read_and_its_failures_are_not_overlooked() -> None:
    assert read_wrk("Requests/sec:   1234.50\nTransfer/sec: 1MB") == 1234.5
    for bad in ("Non-2xx or 3xx responses: 3\nRequests/sec: 9.0", "Socket errors: read 1\nRequests/sec: 9", ""):
        with pytest.raises(BenchmarkError):
            read_wrk(bad)


@contextmanager
def service(status: int) -> Iterator[tuple[str, list[bytes]]]:
    """A service that answers with one status, and what it was sent."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # the sender hung up

    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/v1", bodies
        finally:
            running.shutdown()
            thread.join()


def over_behind(monkeypatch: pytest.MonkeyPatch, bodies: list[bytes], count: int) -> None:
    """Let the time of the sender pass when so many requests have come, however long they take."""
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + 1_000 * (len(bodies) >= count))
    monkeypatch.setattr(http_load, "time", clock)


def test_the_python_sender_counts_answers_on_all_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with service(201) as (url, bodies):
        over_behind(monkeypatch, bodies, 10)
        rate = send(url, [b'{"a":1}', b'{"b":2}'], 3, 60)
    assert set(bodies) == {b'{"a":1}', b'{"b":2}'}
    assert rate > 0


def test_the_python_sender_does_not_overlook_failures() -> None:
    with service(503) as (url, _), pytest.raises(BenchmarkError, match="503"):
        send(url, [b"{}"], 1, 60)


def test_a_paced_sender_keeps_its_rate_and_tells_how_long_answers_took(tmp_path: Path) -> None:
    (tmp_path / "bodies").write_bytes(b'{"a":1}\n{"b":2}\n')
    with service(201) as (url, bodies):
        found = paced(Load(url, tmp_path / "bodies", 4, 0.5), 100)
    assert len(bodies) == 50
    assert set(bodies) == {b'{"a":1}', b'{"b":2}'}
    assert 0 < found.p50 <= found.p99
    assert found.rate <= 110  # it never runs ahead
