"""Endpoints that answer anything: no bytes break the client, or are taken for the answer to another message."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from delayq.embedded.processes import LOCALHOST
from tests.support.amounts import amount
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS
from tests.support.waiting import eventually
from tests.targets.conftest import Webhooks, has_arrived

STATUSES = (200, 201, 204, 299, 304, 302, 400, 404, 410, 429, 500, 503)
OUTCOMES = {"ok", "rejected", "unavailable", "unknown"}
SENDS = 1_000
_FINAL_OK = re.compile(rb"HTTP/\d\.\d 2\d\d")


def an_answer(chance: random.Random, status: int) -> bytes:
    """An answer that is complete, with whatever framing."""
    body = chance.choice((b"", b"done", b"HTTP/1.1 200 OK\r\n\r\n", chance.randbytes(chance.randrange(40))))
    head = b"HTTP/1.1 %d X\r\n" % status
    if status in (204, 304):
        return head + chance.choice((b"\r\n", b"content-length: 0\r\n\r\n"))
    if chance.random() < 0.3:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(some), some) for some in (body[:3], body[3:]) if some)
        return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def a_surplus(chance: random.Random) -> bytes:
    """What follows an answer, and belongs to nobody."""
    return chance.choice((
        an_answer(chance, 200),
        an_answer(chance, chance.choice(STATUSES)),
        b"HTTP/1.1 100 Continue\r\n\r\n" + an_answer(chance, 200),
        b"done",
        b"\r\n",
        b"HTTP/1.1 200",
        chance.randbytes(1 + chance.randrange(30)),
    ))  # fmt: skip


class Liar:
    """Answers each request with what the test says, and then perhaps with more."""

    def __init__(self) -> None:
        self.own = self.surplus = b""
        self.in_one_piece = self.closes = False
        self.requests: Counter[bytes] = Counter()
        self.done = threading.Event()
        self._listener = socket.create_server((LOCALHOST, 0))
        self._open = ExitStack()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOCALHOST}:{self._listener.getsockname()[1]}/"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.enter_context(one)
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError), sock, sock.makefile("rb") as requests:
            while requests.readline():
                headers = dict(line.rstrip().split(b": ", 1) for line in iter(requests.readline, b"\r\n"))
                requests.read(int(headers[b"content-length"]))
                self.requests[headers[b"ce-id"]] += 1
                try:
                    for piece in [self.own + self.surplus] if self.in_one_piece else [self.own, self.surplus]:
                        sock.sendall(piece)
                    if self.closes:
                        sock.shutdown(socket.SHUT_RDWR)
                finally:
                    self.done.set()

    def close(self) -> None:
        """End all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._open.close()


@pytest.fixture
def liar() -> Iterator[Liar]:
    one = Liar()
    yield one
    one.close()


@pytest.mark.parametrize("seed", range(amount(2, 150)))
def test_whatever_an_endpoint_sends_only_its_own_answer_makes_a_message_delivered(
    liar: Liar, webhooks: Webhooks, seed: int
) -> None:
    chance = random.Random(seed)
    hook = webhooks(liar.url)
    found: Counter[str] = Counter()
    for number in range(SENDS):
        own = bytearray(an_answer(chance, chance.choice(STATUSES)))
        whole = chance.random() < 0.7
        if not whole:
            for _ in range(1 + chance.randrange(3)):
                own[chance.randrange(len(own))] = chance.randrange(256)
            own = own[: chance.choice((len(own), 1 + chance.randrange(len(own))))]
        liar.own, liar.surplus = bytes(own), a_surplus(chance) if chance.random() < 0.5 else b""
        liar.in_one_piece, liar.closes = chance.random() < 0.5, not whole or chance.random() < 0.1
        liar.done.clear()
        (outcome,) = outcomes(hook.send([delivery(f"m-{number}")], SEND_SECONDS))
        liar.done.wait()
        if liar.surplus or liar.closes:  # what arrives behind the next request nobody can tell from its answer
            eventually(lambda: has_arrived(hook), "the rest has arrived")
        found[outcome] += 1
        assert outcome in OUTCOMES
        assert outcome != "ok" or _FINAL_OK.search(liar.own), (number, liar.own, liar.surplus)
    assert set(liar.requests.values()) == {1} and len(liar.requests) == SENDS, "each was sent once"
    assert found["ok"] > 20 and found["rejected"] > 10
