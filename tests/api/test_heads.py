"""The heads of requests, and connections that misbehave before there is a request."""

from __future__ import annotations

import asyncio
import re
import resource
from socket import SO_RCVBUF, SOL_SOCKET, create_connection

import httpx2
import pytest

import api.server
from delayq.config import Settings
from tests.api.conftest import Serving, connect, talk

JSON = {"content-type": "application/json"}


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What is still sent before the connection ends, be it by a reset."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_a_head_that_is_too_large_or_no_http_is_refused(small: httpx2.AsyncClient) -> None:
    size = 2 * api.server.HEAD_BYTES
    heads = [
        (431, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n" + (name + b": " + b"a" * (size // count) + b"\r\n") * count)
        for name in (b"x-large", b"cookie")
        for count in (1, 500)
    ]
    heads += [(400, b"\x16\x03\x01 hello\r\n"), (400, b"GET /livez HTTP/1.1\r\nhost: localhost\r\nbad header\r\n")]
    for status, head in heads:
        answer = await talk(small, head + b"\r\n")
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert "application/problem+json" in answer


async def test_a_head_without_an_end_is_refused_while_it_comes(small: httpx2.AsyncClient) -> None:
    reader, writer = await connect(small)
    writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-large: ")
    for _ in range(2 * api.server.HEAD_BYTES // 1_000):
        writer.write(b"a" * 1_000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
    writer.close()


async def test_a_head_that_does_not_come_closes_its_connection(
    settings: Settings, socket: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with socket(settings) as client:
        with monkeypatch.context() as quick:
            quick.setattr(api.server, "HEAD_SECONDS", 0.05)  # short, since no head comes
            for sent in (b"", b"GET /livez HTTP/1.1\r\nhost:"):
                reader, writer = await connect(client)
                writer.write(sent)
                assert await rest_of(reader) == b""
                writer.close()
        assert (await client.get("/livez")).status_code == 200


async def test_large_bodies_after_a_small_head_are_no_large_head(settings: Settings, socket: Serving) -> None:
    text = b'{"topic":"orders","delayTime":1000,"body":"%s"}' % (b"x" * 300_000)
    async with socket(settings) as client:
        for _ in range(3):
            assert (await client.post("/v1/messages", content=text, headers=JSON)).status_code == 201


async def test_a_large_head_is_refused_also_behind_another_request(small: httpx2.AsyncClient) -> None:
    reader, writer = await connect(small)
    for size, status in ((10, b"200"), (20_000, b"200"), (40_000, b"431")):
        writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-large: " + b"a" * size + b"\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        if status == b"200":
            await reader.readexactly(len(b'{"status":"alive"}'))
    writer.close()
    await rest_of(reader)


async def test_connections_that_wait_are_bounded_and_the_oldest_makes_room(
    settings: Settings, socket: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2: Before the API has no file descriptor left, it closes the connection that has waited longest.

    Where no file descriptor is left, the system would refuse everybody.
    """
    monkeypatch.setattr(resource, "getrlimit", lambda _: (api.server.SPARE_FILES + 70, 4_096))
    async with socket(settings) as client:
        slow = []
        for number in range(200):
            reader, writer = await connect(client)
            writer.write(b"GET /livez HTTP/1.1\r\nx-a: " if number % 2 else b"")
            slow.append((reader, writer))
        assert (await client.get("/livez")).status_code == 200
        for reader, writer in slow[:100]:  # some 70 are left, and one of them has been answered
            assert await rest_of(reader) == b""
            writer.close()
        assert not slow[-1][0].at_eof()
        for _, writer in slow[100:]:
            writer.close()


@pytest.mark.parametrize("last", [b"", b"connection: close\r\n"])
async def test_a_caller_that_reads_no_answer_is_cut_off(
    last: bytes, settings: Settings, socket: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2: A caller has 60 s to read an answer.

    Also if the answers are complete and only wait to be read: closing would wait for the caller, for ever.
    """
    lost = asyncio.Event()
    end = api.server.Protocol.connection_lost

    def lose(protocol: api.server.Protocol, error: Exception | None) -> None:
        end(protocol, error)
        lost.set()

    monkeypatch.setattr(api.server.Protocol, "connection_lost", lose)
    async with socket(settings) as client:
        with monkeypatch.context() as quick:
            quick.setattr(api.server, "ANSWER_SECONDS", 0.05)  # short, since nobody reads
            with create_connection((client.base_url.host, client.base_url.port)) as peer:
                peer.setsockopt(SOL_SOCKET, SO_RCVBUF, 4_096)
                request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n"
                peer.sendall((request + b"\r\n") * 60 + request + last + b"\r\n")
                await lost.wait()  # the kernel keeps what it took: the peer cannot see it before it reads
        assert (await client.get("/livez")).status_code == 200


async def test_pipelined_requests_are_answered_in_order(small: httpx2.AsyncClient) -> None:
    reader, writer = await connect(small)
    writer.write(
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2
        + b"GET /nope HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    text = (await reader.read()).decode()
    assert re.findall(r"HTTP/1.1 (\d+)", text) == ["200", "200", "404"]
    writer.close()
    await writer.wait_closed()
