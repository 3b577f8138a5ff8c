"""Connections: used again only to an address that was checked anew, and by TLS only with whom the URL names."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from delayq.embedded.processes import LOCALHOST, free_port
from delayq.targets.webhook.connections import IDLE, Connections
from delayq.testing import ManualClock
from tests.support.certificates import Authority
from tests.support.deliveries import delivery, outcomes
from tests.support.receiver import Answer, Receiver
from tests.support.timeouts import SEND_SECONDS, SEND_TIMEOUT
from tests.support.waiting import eventually
from tests.targets.conftest import Names, Webhooks, has_arrived


def used(receiver: Receiver) -> list[int]:
    """Which connection each request came over."""
    return [request.connection for request in receiver.requests]


# -- used again ------------------------------------------------------------------------------------------------------------


def test_a_connection_is_used_again(receiver: Receiver, webhooks: Webhooks, names: Names) -> None:
    names["hooks.example"] = [LOCALHOST]
    hook = webhooks(receiver.url("hooks.example"))
    for status in (200, 204, 400, 503, 201):
        receiver.say(status)
        hook.send([delivery("a")], SEND_SECONDS)
    assert used(receiver) == [0] * 5


def test_a_connection_is_not_used_again_when_its_name_has_lost_the_address_or_has_got_one_that_may_not_be(
    receiver: Receiver, webhooks: Webhooks, names: Names
) -> None:
    hook = webhooks(receiver.url("hooks.example"), allow=(LOCALHOST, "127.0.0.2"))
    for addresses, outcome in (
        ([LOCALHOST], "ok"),
        (["127.0.0.2"], "unavailable"),  # nobody listens there
        ([LOCALHOST], "ok"),
        ([LOCALHOST, "169.254.169.254"], "unavailable"),
    ):
        names["hooks.example"] = addresses
        (result,) = hook.send([delivery("a")], SEND_SECONDS)
        assert result.outcome == outcome
    assert "169.254.169.254, which is not public" in result.reason
    assert used(receiver) == [0, 1]


def test_the_connection_goes_to_the_address_that_was_checked_and_the_name_is_asked_for_once(
    receiver: Receiver, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that changes its address between the check and the connection gains nothing."""
    answers = [LOCALHOST, "127.0.0.2", "127.0.0.3"]
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **more: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers[len(asked) - 1], port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    hook = webhooks(receiver.url("hooks.example"), allow=(LOCALHOST,))
    assert outcomes(hook.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    assert asked == ["hooks.example"]
    assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"


def test_another_address_is_tried_where_one_is_away(receiver: Receiver, webhooks: Webhooks, names: Names) -> None:
    names["hooks.example"] = ["127.0.0.9", LOCALHOST]
    assert outcomes(webhooks(receiver.url("hooks.example")).send([delivery("a")], SEND_SECONDS)) == ["ok"]


def test_an_address_that_gives_no_answer_is_tried_last_until_it_answers_again(
    receiver: Receiver, webhooks: Webhooks, names: Names
) -> None:
    """Else a retry would go to it each time, and a message would burn its attempts there."""
    with socket.create_server(("127.0.0.9", receiver.port)) as bad:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    bad.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        names["hooks.example"] = ["127.0.0.9", LOCALHOST]
        hook = webhooks(receiver.url("hooks.example"))
        assert outcomes(hook.send([delivery(one) for one in "abc"], SEND_SECONDS)) == ["unknown", "ok", "ok"]
        names["hooks.example"] = ["127.0.0.9"]
        assert outcomes(hook.send([delivery("d")], SEND_SECONDS)) == ["unknown"]
        bad.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert receiver.ids == ["b", "c"]


def test_a_connection_is_not_kept_for_long(receiver: Receiver, webhooks: Webhooks) -> None:
    clock = ManualClock()
    hook = webhooks(receiver.url(), clock=clock)
    for pause in (0, IDLE - 1, IDLE):
        clock.advance(pause)
        hook.send([delivery("a")], SEND_SECONDS)
    assert used(receiver) == [0, 0, 1]


def test_nothing_is_asked_when_the_time_is_over_once_the_connection_stands(
    receiver: Receiver, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, connect = ManualClock(), Connections._connect

    def slowly(*given: Any) -> Any:
        connection = connect(*given)
        clock.advance(SEND_TIMEOUT)  # as if the process had stood still
        return connection

    hook = webhooks(receiver.url(), clock=clock)
    monkeypatch.setattr(Connections, "_connect", slowly)
    assert outcomes(hook.send([delivery("late")], SEND_SECONDS)) == ["unknown"]
    monkeypatch.undo()
    assert outcomes(hook.send([delivery("now")], SEND_SECONDS)) == ["ok"]
    assert receiver.ids == ["now"]


@pytest.mark.parametrize("left", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"], ids=["closed", "closed-with-a-word"])
def test_a_connection_that_the_endpoint_has_closed_is_not_used_again(
    receiver: Receiver, webhooks: Webhooks, left: bytes
) -> None:
    closed = threading.Event()

    def write(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        got.wait()
        sock.sendall(left)
        sock.shutdown(socket.SHUT_RDWR)
        closed.set()

    got = threading.Event()
    hook = webhooks(receiver.url())
    receiver.say_raw(write)
    assert outcomes(hook.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    got.set()
    assert closed.wait()
    receiver.say(200)
    assert outcomes(hook.send([delivery("b")], SEND_SECONDS)) == ["ok"]
    assert used(receiver) == [0, 1]


@pytest.mark.parametrize(
    "head", [b"content-length: 5\r\n", b"connection: close\r\n", b"transfer-encoding: chunked\r\n"]
)
def test_a_connection_whose_answer_had_no_good_end_is_not_used_again(
    receiver: Receiver, webhooks: Webhooks, head: bytes
) -> None:
    hook = webhooks(receiver.url())
    receiver.say_raw(lambda sock: sock.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\nab"))
    assert outcomes(hook.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    receiver.say(200)
    assert outcomes(hook.send([delivery("b")], SEND_SECONDS)) == ["ok"]
    assert used(receiver) == [0, 1]


# -- answers that belong to nobody, or to another request ------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"
NOTHING = b"HTTP/1.1 204 No Content\r\n"
#: What an endpoint sends in answer to one request: an answer, and what follows its end.
SURPLUS = {
    "the-answer-twice": (OK, OK),
    "half-an-answer": (OK, b"HTTP/1.1 200"),
    "an-interim-answer": (OK, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a-204-with-a-body": (NOTHING + b"\r\n", b"done"),
    "a-204-with-a-length-and-a-body": (NOTHING + b"content-length: 4\r\n\r\n", b"done"),
    "a-304-with-a-body": (b"HTTP/1.1 304 Not Modified\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
    "a-length-too-small": (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ay"),
    "bytes-behind-the-last-chunk": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
        OK,
    ),
    "interim-answers-before-and-behind": (b"HTTP/1.1 102 Processing\r\n\r\n" + OK, b"HTTP/1.1 103 Hints\r\n\r\n" + OK),
    "an-empty-line": (OK, b"\r\n"),
}


def answer_once_more(receiver: Receiver, first: bytes, rest: bytes, told: threading.Event) -> threading.Event:
    """The endpoint answers `first`, `rest` once it is told, and then keeps the connection open; set when it has written."""
    written = threading.Event()

    def write(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if told.is_set():
            sock.sendall(first + rest)
        else:
            sock.sendall(first)
            told.wait()
            sock.sendall(rest)
        written.set()
        receiver.over.wait()

    receiver.say_raw(write)
    return written


@pytest.mark.parametrize("together", [True, False], ids=["in-one-piece", "later"])
@pytest.mark.parametrize("surplus", SURPLUS)
def test_what_follows_an_answer_is_never_the_answer_to_the_next_message(
    receiver: Receiver, webhooks: Webhooks, surplus: str, together: bool
) -> None:
    """E12: Bytes after an answer end the connection."""
    told = threading.Event()
    if together:
        told.set()
    first, rest = SURPLUS[surplus]
    written = answer_once_more(receiver, first, rest, told)
    hook = webhooks(receiver.url())
    assert outcomes(hook.send([delivery("a")], SEND_SECONDS)) == ["unavailable" if b"304" in first else "ok"]
    told.set()
    written.wait()
    eventually(lambda: has_arrived(hook), "the rest has arrived")
    receiver.say(503)
    assert outcomes(hook.send([delivery("b")], SEND_SECONDS)) == ["unavailable"]
    receiver.say(200)
    assert outcomes(hook.send([delivery("c")], SEND_SECONDS)) == ["ok"]
    assert (receiver.ids, used(receiver)) == (["a", "b", "c"], [0, 1, 1])


@pytest.mark.parametrize("head", [b"content-length: 4\r\n", b"transfer-encoding: chunked\r\n"])
def test_a_connection_on_which_a_body_may_still_come_after_a_204_is_not_used_again(
    receiver: Receiver, webhooks: Webhooks, head: bytes
) -> None:
    told = threading.Event()
    answer_once_more(receiver, NOTHING + head + b"\r\n", b"done", told)
    hook = webhooks(receiver.url())
    assert outcomes(hook.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    receiver.say(503)
    assert outcomes(hook.send([delivery("b")], SEND_SECONDS)) == ["unavailable"]
    assert used(receiver) == [0, 1]
    told.set()


TWO_ANSWERS = {
    "both-ok": (OK + OK, "ok"),
    "both-busy": (BUSY + BUSY, "unavailable"),
    "ok-and-busy": (OK + BUSY, "unknown"),
    "busy-and-ok": (BUSY + OK, "unknown"),
    "ok-and-an-interim-answer": (OK + b"HTTP/1.1 103 Hints\r\n\r\n" + BUSY, "unknown"),
    "ok-and-half-an-answer": (OK + b"HTTP/1.1 50", "unknown"),
    "ok-and-one-byte-of-an-answer": (OK + b"H", "unknown"),
    "ok-and-a-word": (OK + b"Hi", "ok"),
    "ok-and-an-empty-line": (OK + b"\r\n", "ok"),
}


@pytest.mark.parametrize(("answers", "outcome"), TWO_ANSWERS.values(), ids=TWO_ANSWERS)
def test_of_two_answers_on_a_kept_connection_neither_counts_unless_they_agree(
    receiver: Receiver, webhooks: Webhooks, answers: bytes, outcome: str
) -> None:
    """The first may be an extra answer to the request before, which came late."""
    hook = webhooks(receiver.url())
    ready = threading.Event()

    def write(sock: socket.socket) -> None:
        sock.sendall(OK)
        assert sock.recv(65_536)
        sock.sendall(answers)
        ready.set()
        receiver.over.wait()

    receiver.say_raw(write)
    assert outcomes(hook.send([delivery("a"), delivery("b")], SEND_SECONDS)) == ["ok", outcome]
    ready.wait()
    receiver.say(503)
    assert outcomes(hook.send([delivery("c")], SEND_SECONDS)) == ["unavailable"]
    assert used(receiver) == [0, 1]


def test_several_sends_at_once_each_have_a_connection_of_their_own(receiver: Receiver, webhooks: Webhooks) -> None:
    together = threading.Barrier(4)

    def answer(request: object) -> Answer:
        together.wait()
        return Answer()

    receiver.answer = answer
    hook = webhooks(receiver.url())
    results: list[str] = []

    def send(name: str) -> None:
        for number in range(3):
            results.extend(outcomes(hook.send([delivery(f"{name}{number}")], SEND_SECONDS)))

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["ok"] * 12
    assert len(set(receiver.ids)) == 12
    assert receiver.connections == 4


def test_after_its_end_nothing_is_kept(receiver: Receiver, webhooks: Webhooks) -> None:
    hook = webhooks(receiver.url())
    hook.send([delivery("a")], SEND_SECONDS)
    hook.close()
    hook.send([delivery("b")], SEND_SECONDS)
    hook.send([delivery("c")], SEND_SECONDS)
    assert used(receiver) == [0, 1, 2]


def test_proxies_of_the_environment_are_not_used(
    receiver: Receiver, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            monkeypatch.setenv(variable, f"http://{LOCALHOST}:{free_port()}")
    assert outcomes(webhooks(receiver.url()).send([delivery("a")], SEND_SECONDS)) == ["ok"]


# -- TLS -------------------------------------------------------------------------------------------------------------------


class TlsReceiver(Receiver):
    """A receiver whose certificate is for hooks.example and 127.0.0.1; `ca` is who issued it."""

    def __init__(self, authority: Authority) -> None:
        self.ca = str(authority.file)
        self.asked_for: list[str | None] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue("hooks", "hooks.example", LOCALHOST).both)
        context.sni_callback = lambda sock, name, _: self.asked_for.append(name)
        super().__init__(context)


@pytest.fixture
def tls(authority: Authority) -> Iterator[TlsReceiver]:
    with TlsReceiver(authority) as running:
        yield running


def test_by_tls_the_host_is_asked_for_and_verified_whatever_its_address(
    tls: TlsReceiver, webhooks: Webhooks, names: Names
) -> None:
    names["hooks.example"] = [LOCALHOST]
    hook = webhooks(tls.url("hooks.example"), ca=tls.ca)
    assert outcomes(hook.send([delivery("a"), delivery("b")], SEND_SECONDS)) == ["ok", "ok"]
    assert tls.asked_for == ["hooks.example"]
    assert used(tls) == [0, 0]
    assert outcomes(webhooks(tls.url(), ca=tls.ca).send([delivery("a")], SEND_SECONDS)) == ["ok"]


@pytest.mark.parametrize("together", [True, False], ids=["in-one-piece", "later"])
def test_by_tls_too_a_second_answer_is_nobodys(tls: TlsReceiver, webhooks: Webhooks, together: bool) -> None:
    told = threading.Event()
    if together:
        told.set()
    written = answer_once_more(tls, OK, OK, told)
    hook = webhooks(tls.url(), ca=tls.ca)
    assert outcomes(hook.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    told.set()
    written.wait()
    eventually(lambda: has_arrived(hook), "the rest has arrived")
    tls.say(503)
    assert outcomes(hook.send([delivery("b"), delivery("c")], SEND_SECONDS)) == ["unavailable"] * 2
    assert used(tls) == [0, 1, 1]


Trouble = Callable[[TlsReceiver], tuple[str, dict[str, str]]]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (lambda tls: (tls.url("other.example"), {"ca": tls.ca}), "mismatch"),
        (lambda tls: (tls.url("hooks.example"), {}), "certificate verify failed"),
        (lambda tls: (tls.url("127.0.0.2"), {"ca": tls.ca}), ""),
    ],
    ids=["another-name", "an-issuer-that-is-not-known", "another-address"],
)
def test_whoever_has_not_the_hosts_certificate_gets_nothing(
    tls: TlsReceiver, webhooks: Webhooks, names: Names, trouble: Trouble, said: str
) -> None:
    names["hooks.example"] = names["other.example"] = [LOCALHOST]
    url, options = trouble(tls)
    (result,) = webhooks(url, **options).send([delivery("a")], SEND_SECONDS)
    assert result.outcome == "unavailable"
    assert said in result.reason
    assert tls.requests == []


def test_a_server_that_speaks_no_tls_or_never_answers_took_nothing(receiver: Receiver, webhooks: Webhooks) -> None:
    assert outcomes(webhooks(f"https://{LOCALHOST}:{receiver.port}/").send([delivery("a")], SEND_SECONDS)) == [
        "unavailable"
    ]
    with socket.create_server((LOCALHOST, 0)) as silent:
        hook = webhooks(f"https://{LOCALHOST}:{silent.getsockname()[1]}/", connectTimeout=200)
        assert outcomes(hook.send([delivery("a")], SEND_SECONDS)) == ["unavailable"]
    assert receiver.requests == []
