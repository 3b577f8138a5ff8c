"""Where one request ends and the next begins: no byte of a body is a request, and each answer belongs to its request."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

import api.server
from api.server import Protocol
from delayq.config import Settings
from tests.api.conftest import Serving, connect
from tests.support.amounts import amount
from tests.support.raw_http import Connection, Requested, answers, requests

POISON = b"DELETE /poison HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: Ways to offer another protocol, as headers.
OFFERS = {
    "curl --http2 and Java": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n",
    "a browser's WebSocket": b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n",
    "TLS within HTTP": b"connection: upgrade\r\nupgrade: TLS/1.0\r\n",
    "several protocols": b"Connection: keep-alive, uPgRaDe\r\nUpgrade: h2c, websocket;q=1, foo/7\r\nUpgrade: IRC/6.9\r\n",
    "in two lines, in another order": b"Upgrade:foo\r\nConnection: x\r\nConnection:Upgrade\r\n",
    "with an end": b"Connection: close, Upgrade\r\nUpgrade: h2c\r\n",
    "without Connection": b"Upgrade: h2c\r\n",
    "without a protocol": b"Connection: Upgrade\r\n",
    "with Expect": b"Expect: 100-continue\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n",
}


def framed(body: bytes, chunks: int = 0) -> bytes:
    """The end of a head, and the body: in so many chunks, or with its length."""
    if not chunks:
        return b"Content-Length: %d\r\n\r\n" % len(body) + body
    size = max(1, -(-len(body) // chunks))
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in [*parts, b""])


def split(data: bytes, size: int) -> Iterator[bytes]:
    yield from (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("chunks", [0, 1, 3])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT"])
async def test_an_offer_to_change_the_protocol_is_ignored(offer: str, chunks: int, method: str) -> None:
    """H5: The API ignores an offer of another protocol (`Upgrade`)."""
    begin = b"%s /a HTTP/1.1\r\nHost: localhost\r\n" % method.encode()
    data = begin + OFFERS[offer] + framed(POISON, chunks)
    closes = b"close" in OFFERS[offer]
    wanted = [Requested(method, "/a", POISON)] * (1 if closes else 2)
    for size in (1, 7, len(data), 2 * len(data)):
        connection = Connection()
        await connection.feed(split(data * 2, size))
        assert connection.requested == wanted
        given = [one for one in answers(bytes(connection.transport.written)) if one.status != 100]
        assert [(one.status, one.body) for one in given] == [(200, b"/a")] * len(wanted)
        await connection.close()


async def test_an_offer_over_a_socket_schedules_the_message_and_no_more(settings: Settings, socket: Serving) -> None:
    """Over uvloop's own transport, with the body behind the head and apart from it."""
    async with socket(settings) as client:
        body = json.dumps({"topic": "t", "delayTime": 60_000, "id": "kept"}).encode()
        assert (
            await client.post("/v1/messages", content=body, headers={"content-type": "application/json"})
        ).is_success
        kill = b"DELETE /v1/messages/kept HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for offer in OFFERS.values():
            for text, status in ((body, b"200"), (kill, b"400")):
                reader, writer = await connect(client)
                head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                writer.write(head + offer + b"Content-Length: %d\r\n\r\n" % len(text))
                if b"Expect" in offer:
                    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
                writer.write(text)
                writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                found = answers(await reader.read())
                assert [b"%d" % one.status for one in found] == [status, *([] if b"close" in offer else [b"200"])]
                writer.close()
        assert (await client.get("/v1/messages/kept")).json()["state"] == "scheduled"


#: Heads of which one reader takes something for a body that another takes for a request. Each must end the connection.
AMBIGUOUS = {
    "two lengths": b"Content-Length: 0\r\nContent-Length: 44\r\n",
    "two equal lengths": b"Content-Length: 44\r\nContent-Length: 44\r\n",
    "a list of lengths": b"Content-Length: 44, 44\r\n",
    "a length with a sign": b"Content-Length: +44\r\n",
    "a length in hex": b"Content-Length: 0x2c\r\n",
    "an empty length": b"Content-Length: \r\n",
    "a length beyond 64 bits": b"Content-Length: 18446744073709551660\r\n",
    "a length and chunks": b"Content-Length: 44\r\nTransfer-Encoding: chunked\r\n",
    "chunks and a length": b"Transfer-Encoding: chunked\r\nContent-Length: 44\r\n",
    "chunks that are not last": b"Transfer-Encoding: chunked, identity\r\n",
    "chunks twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "another coding": b"Transfer-Encoding: identity\r\n",
    "a quoted coding": b'Transfer-Encoding: "chunked"\r\n',
    "a coding with a tab of another kind": b"Transfer-Encoding: \x0bchunked\r\n",
    "a blank before the colon": b"Content-Length : 44\r\n",
    "a folded line": b"X-A: b\r\n Content-Length: 44\r\n",
    "a folded coding": b"Transfer-Encoding:\r\n chunked\r\n",
    "a bare LF": b"X-A: b\nContent-Length: 44\r\n",
    "a bare CR": b"X-A: b\rContent-Length: 44\r\n",
    "NUL": b"X-A: \0\r\n",
}
#: Bodies in chunks of which the same holds.
BROKEN = {
    "a size below 0": b"-1\r\n",
    "a size in another notation": b"0x0\r\n\r\n",
    "a size beyond 64 bits": b"10000000000000000\r\n\r\n",
    "a blank behind the size": b"0 \r\n\r\n",
    "bare LFs": b"0\n\n",
    "an LF in an extension": b"0;a\n\r\n\r\n",
    "data longer than the size": b"1\r\n{}\r\n0\r\n\r\n",
    "no size": b"\r\n\r\n",
    "a length behind the body": b"0\r\nContent-Length: 44\r\n\r\n",
}
BEGIN = b"POST /a HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("name", [*AMBIGUOUS, *BROKEN])
async def test_what_two_readers_may_frame_differently_ends_the_connection(name: str) -> None:
    data = BEGIN + AMBIGUOUS[name] + b"\r\n" if name in AMBIGUOUS else BEGIN + framed(b"", 1)[:-5] + BROKEN[name]
    for reads_bodies in (True, False):
        for size in (1, 1_000):
            connection = Connection(reads_bodies=reads_bodies)
            await connection.feed(split(data + POISON, size))
            assert {one.target for one in connection.requested} <= {"/a"}
            (answer,) = answers(bytes(connection.transport.written))
            assert answer.status == (200 if connection.requested else 400)
            assert connection.transport.closed
            await connection.close()


async def test_a_refusal_never_answers_an_earlier_request() -> None:
    """Each bad request comes behind a good one that is still in progress."""
    large = b"GET /b HTTP/1.1\r\nX-A: " + b"a" * api.server.HEAD_BYTES + b"\r\n\r\n"
    for bad, status in (
        (b"\x16\x03\x01", 400),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", 405),
        (large, 431),
        (b"GET /b HTTP/2.0\r\n\r\n", 400),
    ):
        connection = Connection()
        connection.protocol.data_received(BEGIN + framed(b"{}") + bad + POISON)
        assert not connection.transport.written
        await connection.feed([])
        assert connection.requested == [Requested("POST", "/a", b"{}")]
        assert [one.status for one in answers(bytes(connection.transport.written))] == [200, status]
        assert connection.transport.closed
        await connection.close()


async def test_a_caller_that_was_not_told_to_send_its_body_has_its_connection_closed() -> None:
    """It may send the body all the same, or the next request: the server cannot know which."""
    connection = Connection(reads_bodies=False)
    await connection.feed([BEGIN + b"Expect: 100-continue\r\nContent-Length: 44\r\n\r\n", POISON])
    (answer,) = answers(bytes(connection.transport.written))
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert connection.transport.closed
    await connection.close()


@pytest.mark.parametrize("reads_bodies", [True, False])
async def test_an_end_that_a_trailer_announces_closes_the_connection(reads_bodies: bool) -> None:
    """The parser drops what follows. Without an end the caller would wait for an answer to it."""
    connection = Connection(reads_bodies=reads_bodies)
    begin = BEGIN + framed(b"{}", 1)[:-2]
    await connection.feed([begin, b"Connection: close\r\n\r\n", POISON])
    assert [one.status for one in answers(bytes(connection.transport.written))] == [200]
    assert connection.transport.closed
    await connection.close()


async def test_a_caller_by_http_1_0_gets_no_interim_answer() -> None:
    connection = Connection()
    await connection.feed([b"POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"])
    assert not connection.transport.written
    await connection.feed([b"{}"])
    assert [one.status for one in answers(bytes(connection.transport.written))] == [200]
    await connection.close()


@pytest.mark.parametrize("more", [b"1;" + b"a" * 1_000, b"1\r\n \r\n0\r\n" + b"X-A: b\r\n" * 200])
async def test_what_stands_around_the_chunks_of_a_body_is_bounded(more: bytes) -> None:
    connection = Connection()
    await connection.feed([BEGIN + framed(b"", 1)[:-5]])
    await connection.feed([more, *[more[-8:] * 1_000] * 10])
    assert [one.status for one in answers(bytes(connection.transport.written))] == [400]
    assert not list(connection.protocol.cycle.scope["headers"])[2:]  # a trailer is no header
    await connection.close()


CALLBACKS = ["on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"]


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("error", [MemoryError, OSError, ValueError, UnicodeDecodeError("ascii", b"x", 0, 1, "x")])
async def test_a_fault_of_the_server_closes_the_connection_and_blames_nobody(
    callback: str, error: Exception | type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, callback, Mock(side_effect=error))
    connection = Connection()
    await connection.feed([BEGIN + b"Upgrade: h2c\r\nConnection: Upgrade\r\n" + framed(b"{}")])
    assert connection.transport.closed
    assert not connection.transport.written
    await connection.close()


async def test_a_fault_while_it_answers_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if there is no memory to log it: uvicorn alone would leave the caller without an answer for ever."""
    for failing in ("_app", "logger"):
        connection = Connection()
        if failing == "logger":
            monkeypatch.setattr(connection.protocol.logger, "error", Mock(side_effect=MemoryError))
        monkeypatch.setattr(connection.protocol, "app", Mock(side_effect=MemoryError))
        await connection.feed([BEGIN + framed(b"{}")])
        assert connection.transport.closed
        assert not connection.transport.written
        await connection.close()


METHODS = [b"GET", b"POST", b"DELETE", b"PUT", b"HEAD", b"OPTIONS", b"CONNECT", b"BREW"]
#: What a mutation puts somewhere.
PIECES = [
    *(line for line in AMBIGUOUS.values()), *OFFERS.values(), *BROKEN.values(), POISON, b"\r\n", b"\n", b"\r", b"\0", b" ",
    b"\t", b":", b"0", b"f", b";", b",", b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.0\r\n",
    b"HTTP/2.0\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"Connection: close\r\n", b"%00", b"//", b"\xff", b"*",
]  # fmt: skip


def valid(draw: random.Random) -> bytes:
    """A request whose body holds another one."""
    body = draw.choice([b"", b"{}", POISON, b"0\r\n\r\n" + POISON, bytes(draw.randbytes(draw.randrange(60)))])
    head = b"%s /%d HTTP/1.1\r\nHost: localhost\r\n" % (draw.choice(METHODS[:4]), draw.randrange(1_000))
    head += draw.choice([b"", b"", b"X-A: b\r\n", b"Accept: */*\r\n", *OFFERS.values()])
    return head + framed(body, draw.choice([0, 0, 1, 2, 5]))


def mutated(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(data) + 1)
        data = draw.choice([
            data[:at] + draw.choice(PIECES) + data[at:],
            data[:at] + data[at + draw.randrange(1, 9) :],
            data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :],
            data[:at] + data[max(0, at - 40) : at] + data[at:],
            data[:at],
        ])  # fmt: skip
    return data


def broken_off(data: bytes, draw: random.Random) -> Iterator[bytes]:
    """The bytes as they may arrive."""
    while data:
        size = draw.choice([1, 3, 20, 60, 400, 4_000])
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("seed", range(amount(4, 140)))
async def test_no_bytes_are_executed_twice_or_answer_another_request(seed: int) -> None:
    """H5: No byte of a body is read as a request, and a refusal never answers an earlier request.

    A minute in `./dev test --all`. The executed requests are the first of those that a plain reader finds.
    """
    draw = random.Random(seed)
    for _ in range(2_000):
        good = draw.random() < 0.3
        data = b"".join(valid(draw) if good else mutated(valid(draw), draw) for _ in range(draw.randrange(1, 5)))
        connection = Connection(reads_bodies=good or draw.random() < 0.7)
        await connection.feed(broken_off(data, draw))
        asked = list(requests(data))
        done = connection.requested
        if connection.reads_bodies:
            assert done == asked[: len(done)], data
            assert not good or len(done) == len(asked) or b"close" in data, data
        else:
            assert [one[:2] for one in done][: len(asked)] == [one[:2] for one in asked][: len(done)], data
            assert len(done) <= len(asked) + 1, data  # the body of the last one may be missing
        given = [one for one in answers(bytes(connection.transport.written)) if one.status != 100]
        ok = [one for one in given if one.status == 200]
        assert [one.body.decode() for one in ok] == [one.target for one in done if one.method != "HEAD"], data
        assert len(given) <= len(done) + 1, data
        assert given == ok or (given[:-1] == ok and given[-1].status in (400, 405) and connection.transport.closed), (
            data
        )
        await connection.close()
