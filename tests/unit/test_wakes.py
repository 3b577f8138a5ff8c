"""A subscription that hears nothing: a server with nothing to say, or one that is gone without a word."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from delayq.base.errors import StoreUnavailable
from delayq.store.connect.server_state import packed
from delayq.store.connect.threads import Connection, Wakes

PING = packed("PING")


class Line:
    """A connection that hears what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.heard: list[Any] = []
        self.closed = False
        self.outdated = False

    def send(self, packed: bytes) -> None:
        self.sent.append(packed)

    def readable(self, seconds: float) -> bool:
        return bool(self.heard)

    def receive(self) -> Any:
        return self.heard.pop(0)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def wakes(line: Line) -> Wakes:
    made = Wakes(lambda: cast(Connection, line))
    made.connect(["one", "two"])
    return made


def listen(wakes: Wakes, seconds: int) -> list[Any]:
    return [wakes.receive(1.0) for _ in range(seconds)]


def test_after_some_silence_the_server_is_asked_once_whether_it_is_there_and_then_given_up(
    wakes: Wakes, line: Line
) -> None:
    assert listen(wakes, 4) == [None] * 4
    assert line.sent == [packed("SUBSCRIBE", "one", "two")]
    assert listen(wakes, 5) == [None] * 5
    assert line.sent[1:] == [PING]
    with pytest.raises(StoreUnavailable, match="the subscription is silent"):
        wakes.receive(1.0)
    assert line.closed


@pytest.mark.parametrize(
    "reply", [[b"pong", b""], [b"message", b"one", b"7"], redis.exceptions.NoPermissionError("no")], ids=repr
)
def test_whatever_it_says_it_is_there(wakes: Wakes, line: Line, reply: Any) -> None:
    for _ in range(3):
        listen(wakes, 9)
        line.heard.append(reply)
        assert wakes.receive(1.0) is not None
    assert line.sent[1:] == [PING] * 3


def test_a_subscription_at_a_server_that_is_not_the_primary_any_more_is_left(wakes: Wakes, line: Line) -> None:
    line.outdated = True
    line.heard.append([b"message", b"one", b"7"])
    with pytest.raises(StoreUnavailable, match="no longer the primary"):
        wakes.receive(1.0)
    assert line.closed


def test_a_refused_subscription_is_no_sign_of_life(wakes: Wakes, line: Line) -> None:
    line.heard.append(redis.exceptions.NoPermissionError("no"))
    with pytest.raises(Exception, match="refused the credentials or the command"):
        wakes.receive(1.0)
