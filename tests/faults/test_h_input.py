"""What is sent to do harm: slowly, in excess, in disguise."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable

import httpx2
import pytest

import api.__main__
import api.asgi
import api.server
import coordinator.__main__
import delayq.cli
import workers.__main__
from delayq.config import Settings
from tests.api.conftest import connect, in_process, on_a_socket, talk
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT

JSON = {"content-type": "application/json"}
SLOW = 60
GOOD = '"topic":"orders","delayTime":60000'


HEAD = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
#: What each slow client sends at once; the rest of it comes a byte at a time and never ends.
BEGINNINGS = {
    "nothing": (b"", b""),
    "a head": (b"GET /livez HTTP/1.1\r\nx-a: ", b"a"),
    "a body": (HEAD + b"content-length: 100000\r\n\r\n", b" "),
    "a body in chunks": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a body that nobody waits for": (b"GET /livez HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n", b" "),
    "a body that is refused": (b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n", b" "),
}


async def drip(client: httpx2.AsyncClient, first: bytes, more: bytes) -> bytes:
    """Send slowly until the server ends the connection; what it answered."""
    reader, writer = await connect(client)
    answered = b""
    try:
        writer.write(first)
        while True:
            try:
                part = await asyncio.wait_for(reader.read(10_000), 0.1)
            except TimeoutError:
                writer.write(more)
                continue
            answered += part
            if not part:
                return answered
    except OSError:
        return answered
    finally:
        writer.close()


async def test_h2_slow_clients_are_cut_off_and_others_are_served(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2: A head has 10 s from its first byte and a body 30 s, however slowly it drips.

    The times are shortened, all of them run from the beginning, and dripping does not make them longer.
    """
    # Long enough for one who is served, by the event loop that all of them share.
    monkeypatch.setattr(api.server, "HEAD_SECONDS", 2.0)
    monkeypatch.setattr(api.asgi, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(api.server, "BODY_SECONDS", 2.0)
    async with on_a_socket(settings) as client:
        kinds = list(BEGINNINGS)
        slow = [asyncio.create_task(drip(client, *BEGINNINGS[kinds[n % len(kinds)]])) for n in range(SLOW)]
        while not all(one.done() for one in slow):
            answer = await client.post("/v1/messages", content="{" + GOOD + "}", headers=JSON)
            assert answer.status_code == 201
            await asyncio.sleep(0.01)
        answers = [one.result() for one in slow]
    for number, text in enumerate(answers):
        expected = {
            "a body": b"HTTP/1.1 408 ",
            "a body in chunks": b"HTTP/1.1 408 ",
            "a body that nobody waits for": b"HTTP/1.1 200 ",
            "a body that is refused": b"HTTP/1.1 404 ",
        }.get(kinds[number % len(kinds)], b"")
        assert text.startswith(expected) and bool(text) == bool(expected)


async def test_h2_a_request_that_takes_its_time_here_is_not_cut_off(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.server, "BODY_SECONDS", 0.01)
    monkeypatch.setattr(api.server, "HEAD_SECONDS", 0.5)
    async with on_a_socket(settings) as client:
        reader, writer = await connect(client)
        body = ("{" + GOOD + "}").encode()
        request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
        for _ in range(3):
            writer.write(request)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
            await asyncio.sleep(0.1)  # idle, with the connection kept
            await reader.read(10_000)
        writer.close()


async def test_h3_what_is_too_much_is_refused_and_takes_no_memory(settings: Settings) -> None:
    """H3 (oversized headers, body, JSON depth, 1 M-item batch): 431 over 32 KiB of head, 413 over
    `DELAYQ_REQUEST_LIMIT` unread, 400 for depth and batch."""
    async with on_a_socket(settings.replace(request_limit=100_000)) as client:
        assert "431 " in await talk(client, b"GET /livez HTTP/1.1\r\nx-a: " + b"a" * 100_000 + b"\r\n\r\n")
        assert "431 " in await talk(client, b"GET /livez HTTP/1.1\r\n" + b"x-a: b\r\n" * 10_000 + b"\r\n")
        assert "431 " in await talk(client, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
        length = b"content-length: 1000000000000\r\n\r\n"
        assert "413 " in await talk(client, HEAD + length)
    async with in_process(settings) as client:
        for body in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000):
            answer = await client.post("/v1/messages", content="{" + GOOD + f',"body":{body}}}', headers=JSON)
            assert answer.status_code == 400
        one = "{" + GOOD + "}"
        many = '{"messages":[' + ",".join([one] * 100_000) + "]}"
        answer = await client.post("/v1/messages:batch", content=many, headers=JSON)
        assert (answer.status_code, "at most 1000" in answer.json()["detail"]) == (400, True)
        answer = await client.post("/v1/messages:batch", content=b" " * 9_000_000, headers=JSON)
        assert answer.status_code == 413
        assert (await client.get("/v1/queues")).json()["total"]["counters"]["scheduled"] == 0


async def test_h5_no_header_can_be_smuggled_in_or_out(settings: Settings) -> None:
    """H5: 400 for control characters wherever they could become a header, for a request with two lengths, and for one
    with a length and chunks.

    Neither a message nor a route can set a webhook's own headers (`tests/targets`).

    Of webhooks: tests/targets/test_webhook_request.py.
    """
    async with on_a_socket(settings) as client:
        for path in ("/v1/messages/a%0d%0aset-cookie:%20x", "/v1/messages?key=a%0d%0ax:y", "/a%0d%0ax-evil:%20y"):
            answer = await client.get(path)
            assert answer.status_code in (400, 404)
            assert not {"set-cookie", "x", "x-evil"} & set(answer.headers)
        for field in ("id", "topic", "tags", "orderingKey"):
            body = {"topic": "orders", "delayTime": 1} | {field: "a\r\nx-evil: y"}
            assert (await client.post("/v1/messages", json=body)).status_code == 400
        for name, value in (("a\r\nx", "b"), ("a", "b\r\nx-evil: y"), ("a", "b\0")):
            body = {"topic": "orders", "delayTime": 1, "properties": {name: value}}
            assert (await client.post("/v1/messages", json=body)).status_code == 400
        # Two lengths, or a length and chunks: what one proxy reads as the body another reads as the next request.
        two = HEAD + b"content-length: 2\r\ncontent-length: 30\r\n\r\n{}"
        both = HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n"
        for smuggled in (two, both, b"GET /livez HTTP/1.1\r\nx-a: b\r\n folded\x00: c\r\n\r\n"):
            assert (await talk(client, smuggled)).startswith("HTTP/1.1 400 ")


HOSTILE = 'a\n{"event": "forged"}\r\n\x1b[31mred\x1b[0m\u2028\x00'
LOGGING = f"""
import logging, structlog
from delayq.telemetry import logs
logs.configure("info")
hostile = {HOSTILE!r}
structlog.get_logger("x").warning("access refused", address=hostile, key=hostile)
logging.getLogger("uvicorn").warning("Invalid HTTP request received. %s", hostile)
try:
    raise ValueError(hostile)
except ValueError:
    structlog.get_logger("x").exception("a request failed", path=hostile)
logging.shutdown()
"""


def test_h6_a_log_line_stays_one_line_whatever_is_in_it() -> None:
    """H6 (log injection (newline, ANSI)): Each event is one escaped line of JSON, also from other libraries.

    Where nobody looks on, each event is one line of JSON.
    """
    command = [sys.executable, "-c", LOGGING]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    lines = ran.stderr.decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line)["event"][:6] for line in lines] == ["access", "Invali", "a requ"]
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", ran.stderr)
    assert json.loads(lines[0])["key"] == HOSTILE


async def test_h8_no_name_reaches_another_key_of_redis(settings: Settings, valkey: ServerUnderTest) -> None:
    """H8: Tags, business keys and ordering keys may be any text.

    They are data, and in the name of a key only behind its hash tag.

    What stands in the names of keys is checked; what does not is data in a hash or a sorted set.
    """
    message = {"topic": "orders", "delayTime": 60_000}
    async with in_process(settings) as client:
        await client.post("/v1/messages", json=message | {"id": "first"})
        before = set(valkey.admin.keys("*"))
        for text in ("{1}", "a}b", "a{b", "a*", "a b", "a?b", "[a]", "delayq:pool", "a\0b", "a/b", "a\\b"):
            for field in ("topic", "id") if text != "delayq:pool" else ("topic",):
                assert (await client.post("/v1/messages", json=message | {field: text})).status_code == 400
            for given in ({"tags": text}, {"orderingKey": text}, {"keys": [text]}):
                await client.post("/v1/messages", json=message | given)
            await client.get("/v1/messages", params={"key": text})
        made = set(valkey.admin.keys("*")) - before
    assert all(re.fullmatch(rb"delayq:\{\d+\}:(pool|queue|state|keys|final|attempts)", key) for key in made)


async def test_h9_no_label_of_a_metric_comes_from_outside(settings: Settings) -> None:
    """H9 (metric label explosion): Labels are routes, queues, methods, statuses and results; none comes from outside."""
    async with in_process(settings) as client:
        before = set()
        for number in range(40):
            await client.get(f"/v1/messages/{number}")
            await client.get(f"/nowhere/{number}")
            await client.request(f"X{number}", "/v1/messages")
            await client.post("/v1/messages", json={"topic": f"orders.{number}", "delayTime": 60_000})
            if number == 5:
                before = series((await client.get("/metrics")).text)
        after = series((await client.get("/metrics")).text)
    assert after - before <= {one for one in after if 'route="/metrics"' in one}
    assert len(after) < 200


def series(text: str) -> set[str]:
    """The names and labels of what is exported."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


async def test_h13_nothing_that_is_compressed_is_unpacked(settings: Settings) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    async with in_process(settings) as client:
        for encoding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip", "GZIP"):
            for packed in (bomb, zlib.compress(b"{}")):
                headers = JSON | {"content-encoding": encoding}
                assert (await client.post("/v1/messages", content=packed, headers=headers)).status_code == 415
    async with on_a_socket(settings) as client:
        head = HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n" + b"%x\r\n" % len(bomb) + bomb + b"\r\n0\r\n\r\n"
        assert "HTTP/1.1 400 " in await talk(client, head)


def test_h15_no_byte_from_outside_is_unpickled_or_run() -> None:
    """H15: The jars are those of servers for tests. deploy/constraints.txt pins the Python packages of the image;
    those of the library are bounded.

    No module of ours knows a way to make objects or code of bytes, and what is installed is bounded by version.
    """
    bad = re.compile(
        r"^\s*(?:import|from)\s+(?:pickle|cPickle|_pickle|marshal|shelve|dill|cloudpickle|jsonpickle)\b"
        r"|\b(?:yaml\.(?:unsafe_load|full_load|load)|eval|exec|__import__)\(",
        re.MULTILINE,
    )
    for folder in ("api", "coordinator", "delayq", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            found = bad.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path}: {found.group()}"
    for path in (ROOT / "testbed").glob("*.jars"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                assert re.fullmatch(r"\S+ [0-9a-f]{64}", line), f"{path.name}: {line}"


PROGRAMS: dict[str, Callable[[], int]] = {
    "api": api.__main__.main,
    "workers": workers.__main__.main,
    "coordinator": lambda: coordinator.__main__.main(["--once"]),
    "delayq queues": lambda: delayq.cli.main(["queues"]),
    "delayq doctor": lambda: delayq.cli.main(["doctor"]),
    "delayq bridge": lambda: delayq.cli.main(["bridge", "rabbitmq", "--queue", "q"]),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_h16_a_setting_that_there_is_not_stops_every_program(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """H16 (a misspelled setting, such as `DELAYQ_API_KEYSS`): Every program ends with status 2 and names the nearest
    setting.

    H16: API, worker, coordinator, command line and bridge do so. So no API starts without the keys that somebody
    configured.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setenv("DELAYQ_API_KEYSS", "/etc/delayq/keys.yaml")
    try:
        assert PROGRAMS[program]() == 2
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "DELAYQ_API_KEYSS is not a setting of delayq; the nearest is DELAYQ_API_KEYS, and" in printed.err
    assert printed.err.count("\n") == 1
