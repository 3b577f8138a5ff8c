"""What the client of the HTTP API repeats, and what it makes of answers, with a server that answers as it is told."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import trustme

from delayq import ConfigError, InvalidMessage, Message, NotAllowed, StoreFull, StoreUnavailable, TooManyPending, http
from delayq.embedded.processes import LOCALHOST
from tests.http.conftest import Awaited, Told, answer, problem

GOOD = {"id": "a", "queue": 1, "state": "scheduled", "dueTime": "1970-01-01T00:00:00.005Z", "dueMs": 5}


def test_a_call_is_repeated_with_the_same_bytes_until_it_is_answered(told: Told, caller: Any) -> None:
    told.answers = [
        b"",
        answer(429, problem(429, "rate"), "retry-after: 0"),
        answer(503, problem(503, "unavailable")),
        b"HTTP/1.1 201 Created\r\ncontent-length: 500\r\nconnection: close\r\n\r\n{",
        answer(201, GOOD),
    ]
    scheduled = caller.schedule(Message(topic="t", delay_time=1))
    assert (scheduled.id, scheduled.created) == ("a", True)
    assert len({*told.requests}) == 1
    assert len(told.requests) == 5
    assert b"authorization: Bearer dq_a_b\r\n" in told.requests[0]
    assert json.loads(told.requests[0].partition(b"\r\n\r\n")[2])["id"]


def test_a_connection_is_used_again(told: Told, caller: Any) -> None:
    told.answers = [
        answer(200, {"count": 1, "exact": True, "asOf": None}),
        b'HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
        b'a;x=y\r\n{"count":2\r\n1b\r\n,"exact":true,"asOf": null}\r\n0\r\nx: y\r\n\r\n',
        b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"count":3,"exact":true,"asOf":null}',
        answer(200, {"count": 4, "exact": True, "asOf": None}),
    ]  # fmt: skip
    assert [caller.count().messages for _ in range(4)] == [1, 2, 3, 4]
    assert told.connections == 2


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ((401, "unauthorized"), NotAllowed),
        ((403, "forbidden"), NotAllowed),
        ((507, "full"), StoreFull),
        ((503, "unavailable"), StoreUnavailable),
        ((429, "pending"), TooManyPending),
        ((429, "rate"), StoreUnavailable),
    ],
)
def test_problems_are_the_errors_of_the_client_of_redis(
    told: Told, said: tuple[int, str], kind: type[Exception]
) -> None:
    told.answers = [answer(said[0], problem(*said, id="mine"))]
    with http.Client(told.url, give_up_after=1) as client, pytest.raises(kind, match="why"):
        client.schedule(Message(topic="t", delay_time=1))


def test_a_move_of_time_is_not_repeated_after_a_lost_answer(told: Told, caller: Any) -> None:
    told.answers = [answer(503, problem(503, "unavailable")), b""]
    with pytest.raises(StoreUnavailable, match="would be done again"):
        caller.advance("1h")
    assert len(told.requests) == 2


MOVED = {"id": "m", "queue": 1, "state": "scheduled", "dueTime": "2027-01-31T10:00:00Z", "dueMs": 1_801_389_600_000}
EACH = {"results": [{"status": 200, "id": "m", "result": "scheduled"}]}
OF_A_KEY = {"results": [{"status": 200, "key": "m", "messages": EACH["results"]}]}
#: Each call that moves messages, and an answer.
MOVES: dict[str, tuple[Any, Any]] = {
    "reschedule": (lambda caller, **call: caller.reschedule("m", delay_time="1h", **call), MOVED),
    "deliver_now": (lambda caller, **call: caller.deliver_now("m", **call), MOVED),
    "deliver_now_many": (lambda caller, **call: caller.deliver_now_many(["m"], **call), EACH),
    "deliver_now_by_key": (lambda caller, **call: caller.deliver_now_by_key("m", **call), OF_A_KEY),
    "redrive": (lambda caller, **call: caller.redrive(["m"], **call), EACH),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_call_that_moves_messages_has_a_name_which_its_repeats_have_too(told: Told, caller: Any, move: str) -> None:
    run, said = MOVES[move]
    told.answers = [b"", answer(503, problem(503, "unavailable")), *[answer(200, said)] * 3]
    run(caller)
    run(caller)
    run(caller, call="mine")
    names = [json.loads(request.partition(b"\r\n\r\n")[2])["call"] for request in told.requests]
    assert names[0] == names[1] == names[2] != names[3]
    assert names[4] == "mine"
    with pytest.raises(InvalidMessage, match="call"):
        run(caller, call="of mine")


def test_an_answer_of_another_service_names_the_url(told: Told, caller: Any) -> None:
    told.answers = [b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\nnginx!"]
    with pytest.raises(ConfigError, match="is this the URL of its API"):
        caller.get("m")


def test_tls_is_checked() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with Encrypted(context) as server:
        url = f"https://localhost:{server.port}"
        with http.Client(url, ssl_context=trusting) as client:
            assert client.count().messages == 7
            assert client.count().messages == 7
        awaited = Awaited(http.AsyncClient(url, ssl_context=trusting))
        assert awaited.count().messages == 7
        awaited.end()
        with http.Client(url) as client, pytest.raises(ConfigError, match="certificate"):
            client.count()


class Encrypted:
    """A server with TLS that answers every request with a count of 7."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Encrypted:
        self._thread.start()
        starting = asyncio.start_server(self._serve, LOCALHOST, 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(200, {"count": 7, "exact": True, "asOf": None}))
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)  # each ends with its connection
        await asyncio.sleep(0)

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def test_only_what_failed_of_a_batch_is_sent_again(told: Told, caller: Any) -> None:
    away = {"status": 503, "id": "b", "problem": problem(503, "unavailable", id="b")}
    wrong = {"status": 400, "problem": problem(400, "invalid", "topic: no.", field="topic")}
    told.answers = [
        answer(200, {"results": [{"status": 201} | GOOD, away, wrong]}),
        answer(503, problem(503, "unavailable", results=[away])),
        answer(200, {"results": [{"status": 200} | GOOD | {"id": "b"}]}),
    ]
    first, second, third = caller.schedule_many([Message(topic="t", delay_time=1, id=id) for id in "abc"])
    assert (first.created, second.id, second.created, third.field) == (True, "b", False, "topic")
    sent: Sequence[Any] = [json.loads(one.partition(b"\r\n\r\n")[2])["messages"] for one in told.requests]
    assert [[one["id"] for one in messages] for messages in sent] == [["a", "b", "c"], ["b"], ["b"]]


def test_only_what_failed_of_a_cancel_is_sent_again(told: Told, caller: Any) -> None:
    away = {"status": 503, "id": "b", "problem": problem(503, "unavailable")}
    told.answers = [
        answer(200, {"results": [{"status": 200, "id": "a", "result": "cancelled"}, away]}),
        answer(200, {"results": [{"status": 404, "id": "b", "result": "notFound"}]}),
    ]
    assert [one.result for one in caller.cancel_many(["a", "b"])] == ["cancelled", "notFound"]


def test_a_right_that_is_missing_for_one_message_is_told_of_that_one(told: Told, caller: Any) -> None:
    refused = {"status": 403, "id": "b", "problem": problem(403, "forbidden")}
    told.answers = [answer(200, {"results": [{"status": 200, "id": "a", "result": "cancelled"}, refused]})]
    first, second = caller.cancel_many(["a", "b"])
    assert first.result == "cancelled"
    assert isinstance(second, NotAllowed)


def test_a_call_that_ends_after_the_client_was_closed_leaves_no_connection() -> None:
    with socket.create_server((LOCALHOST, 0)) as listening:
        client, counted = http.Client(f"http://{LOCALHOST}:{listening.getsockname()[1]}"), list[int | None]()
        calling = threading.Thread(target=lambda: counted.append(client.count().messages))
        calling.start()
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as stream:
            while stream.readline() != b"\r\n":
                pass
            client.close()
            connection.sendall(answer(200, {"count": 1, "exact": True, "asOf": None}))
            assert stream.read() == b"", "the client closes it"
        calling.join()
    assert counted == [1]
