"""What is cut off before it is read: over a socket, because that is where it counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

import api.asgi
import api.server
from api.wire.problems import Problem
from tests.api.conftest import LIMIT, connect, talk

JSON = {"content-type": "application/json"}


def assert_too_large(answer: httpx2.Response) -> None:
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(LIMIT) in answer.json()["detail"]


async def test_a_request_over_its_limit_is_refused(small: httpx2.AsyncClient) -> None:
    for path in ("/v1/messages", "/v1/messages:batch", "/v1/messages:cancel", "/v1/dead-letters:redrive"):
        assert_too_large(await small.post(path, content=b" " * (LIMIT + 1), headers=JSON))
        assert (await small.post(path, content=b" " * LIMIT, headers=JSON)).status_code == 400
        assert (await small.get("/v1/queues")).status_code == 200


async def test_a_body_at_its_limit_is_taken_and_one_byte_more_is_not(small: httpx2.AsyncClient) -> None:
    """F12 (body at limit, limit+1, 512 MB, chunked): A body at the limit is accepted; one byte more is 413."""
    text = b'{"topic":"orders","delayTime":60000,"body":"%s"}'
    assert (await small.post("/v1/messages", content=text % (b"x" * 5_000), headers=JSON)).status_code == 201
    answer = await small.post("/v1/messages", content=text % (b"x" * 5_001), headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["field"] == "body"


async def test_who_waits_for_100_continue_is_told_before_sending(small: httpx2.AsyncClient) -> None:
    head = (
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        f"content-type: application/json\r\ncontent-length: {LIMIT + 1}\r\n\r\n"
    )
    assert (await talk(small, head.encode())).startswith("HTTP/1.1 413 ")


async def test_a_body_without_a_length_is_cut_off_at_the_limit(small: httpx2.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(3 * LIMIT // 1_000):
            yield b" " * 1_000

    assert_too_large(await small.post("/v1/messages", content=endless(), headers=JSON))
    text = b'{"topic":"orders","delayTime":60000,"body":["%s"]}' % (b"x" * 3_000)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 7):
            yield text[start : start + 7]

    assert (await small.post("/v1/messages", content=pieces(), headers=JSON)).status_code == 201


async def test_no_more_than_the_limit_is_kept_of_a_body_without_a_length() -> None:
    """F12: A request over its limit gets 413 before its body is read, chunked or not, and takes no memory."""
    seen = 0

    async def receive() -> dict[str, Any]:
        nonlocal seen
        seen += 1_000
        return {"type": "http.request", "body": b" " * 1_000, "more_body": True}

    request = api.asgi.Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)
    with pytest.raises(Problem) as raised:
        await request.json_text(LIMIT)
    assert raised.value.out.status == 413
    assert seen == LIMIT + 1_000


async def test_a_body_that_does_not_come_is_not_waited_for(
    small: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.asgi, "BODY_SECONDS", 0.05)  # short, since no body comes
    head = "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    answer = await talk(small, head.encode())
    assert answer.startswith("HTTP/1.1 408 ")
    assert "connection: close" in answer


async def test_a_client_that_goes_away_half_way_leaves_nothing(small: httpx2.AsyncClient) -> None:
    _, writer = await connect(small)
    writer.write(
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    stats = (await small.get("/v1/queues")).json()["total"]
    assert stats["depth"] == 0
    assert 'status="500"' not in (await small.get("/metrics")).text
