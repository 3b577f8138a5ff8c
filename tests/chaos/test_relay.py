"""The relay between the processes: what it passes on, and how it breaks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delayq.embedded.processes import LOCALHOST
from tests.chaos.relays import Relays
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

LONG = 10.0
SHORT = 0.3


@contextmanager
def echo() -> Iterator[tuple[int, list[bytes]]]:
    """A server that says what it hears; its port, and all that it heard."""
    heard: list[bytes] = []
    listener = socket.create_server((LOCALHOST, 0))

    def answer(link: socket.socket) -> None:
        with link:
            try:
                while data := link.recv(65_536):
                    heard.append(data)
                    link.sendall(data)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(link,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], heard
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(LONG)


class Between:
    """The relay, with two roads to one server, and what that server heard."""

    def __init__(self, relays: Relays, heard: list[bytes]) -> None:
        self.relays = relays
        self.heard = heard

    def connect(self, road: str = "road") -> socket.socket:
        host, _, port = self.relays.address(road).partition(":")
        return socket.create_connection((host, int(port)), timeout=LONG)


@pytest.fixture
def between(tmp_path: Path) -> Iterator[Between]:
    with echo() as (port, heard):
        relays = Relays({"road": port, "other": port}, tmp_path / "relay.log")
        relays.start()
        yield Between(relays, heard)
        relays.stop()


def ask(link: socket.socket, words: bytes) -> bytes:
    """Say something, and hear as much."""
    link.sendall(words)
    answer = b""
    while len(answer) < len(words):
        answer += link.recv(65_536)
        assert answer, "the connection has ended"
    return answer


def is_refused(between: Between) -> bool:
    try:
        with between.connect() as link:
            link.sendall(b"b")
            return link.recv(1) == b""
    except ConnectionError:
        return True


def is_silent(link: socket.socket) -> bool:
    link.settimeout(SHORT)
    try:
        link.recv(1)
        return False
    except TimeoutError:
        return True
    finally:
        link.settimeout(LONG)


def test_it_passes_everything_on(between: Between) -> None:
    with between.connect() as link:
        assert ask(link, b"a word") == b"a word"
        many = bytes(range(256)) * 8_192  # more than its buffers hold
        answers: list[bytes] = []
        reading = threading.Thread(target=lambda: answers.append(_read(link, len(many))))
        reading.start()
        link.sendall(many)
        reading.join(LONG)
        assert answers == [many]


def _read(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += link.recv(65_536)
    return data


def test_what_is_said_before_the_far_end_is_there_arrives_too(between: Between) -> None:
    for _ in range(50):
        with between.connect() as link:
            assert ask(link, b"at once") == b"at once"


def test_a_reset_ends_the_connections_of_one_road_and_takes_new_ones(between: Between) -> None:
    with between.connect() as link, between.connect("other") as other:
        ask(link, b"a")
        ask(other, b"a")
        between.relays.tell("reset", ["road"])
        with pytest.raises(ConnectionResetError):
            link.recv(1)
        assert ask(other, b"b") == b"b"
    with between.connect() as link:
        assert ask(link, b"c") == b"c"


def test_refusing_ends_connections_and_takes_none_until_it_is_healed(between: Between) -> None:
    with between.connect() as link:
        ask(link, b"a")
        between.relays.tell("refuse", ["road"])
        with pytest.raises(ConnectionResetError):
            link.recv(1)
    assert is_refused(between)
    between.relays.heal()
    with between.connect() as link:
        assert ask(link, b"c") == b"c"


def test_a_hole_swallows_everything_and_is_reset_when_it_is_healed(between: Between) -> None:
    with between.connect() as link:
        ask(link, b"a")
        between.relays.tell("hole", ["road"])
        link.sendall(b"swallowed")
        assert is_silent(link)
        between.relays.tell("pass", ["road"])
        with pytest.raises(ConnectionResetError):
            link.recv(1)
    assert b"swallowed" not in between.heard


def test_a_mute_one_lets_requests_through_and_swallows_the_replies(between: Between) -> None:
    with between.connect() as link:
        ask(link, b"a")
        between.relays.tell("mute", ["road"])
        link.sendall(b"heard")
        eventually(lambda: between.heard[-1] == b"heard", "the request is through")
        assert is_silent(link)
        between.relays.heal()
        with pytest.raises(ConnectionResetError):
            link.recv(1)
