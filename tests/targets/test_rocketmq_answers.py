"""What the target makes of a proxy's answers, and of its silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.domain.routes import Route
from delayq.targets.rocketmq.client import Code, MessageType, grpc
from delayq.targets.rocketmq.target import MOST_BYTES, MOST_TOGETHER, RocketMQTarget
from tests.support.deliveries import delivery, outcomes
from tests.support.rocketmq_proxy import FakeProxy
from tests.support.timeouts import SEND_SECONDS
from tests.support.waiting import eventually
from tests.targets.conftest import Closing

Open = Callable[..., RocketMQTarget]

#: A time-out that is to pass; a busy machine needs some of it to hand the message over.
SHORT = 5.0

LATER = ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
CODES = (Code.MASTER_PERSISTENCE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT, Code.HA_NOT_AVAILABLE)


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    with FakeProxy() as running:
        yield running


@pytest.fixture
def opened(proxy: FakeProxy, closing: Closing) -> Iterator[Open]:
    """Opens a target with these options; it is closed at the end."""

    def open(**options: Any) -> RocketMQTarget:
        return closing(RocketMQTarget(proxy.url, Route(name="r", target=proxy.url, options=options), ""))

    yield open
    proxy.release()


def test_a_message_becomes_one_of_rocketmq(proxy: FakeProxy, opened: Open) -> None:
    one = delivery(
        "a",
        b"\0\xff",
        2,
        topic="orders.unpaid",
        tags="unpaid",
        keys=("k1", "k2"),
        ordering_key="customer 7",
        properties={"region": "eu", "none": ""},
    )
    assert outcomes(opened(namespace="ns").send([one], SEND_SECONDS)) == ["ok"]
    (message,) = proxy.messages
    system = message.system_properties
    assert (message.topic.name, message.topic.resource_namespace, message.body) == ("orders-unpaid", "ns", b"\0\xff")
    assert (system.tag, list(system.keys), system.message_group) == ("unpaid", ["k1", "k2"], "customer 7")
    assert system.message_type == MessageType.FIFO
    assert dict(message.user_properties) == {
        "region": "eu",
        "delayq_empty": '["none"]',
        "delayq_id": "a",
        "delayq_topic": "orders.unpaid",
        "delayq_due": "20000",
        "delayq_attempt": "3",
    }


def test_the_route_names_the_topic(proxy: FakeProxy, opened: Open) -> None:
    for template in ("{topic}", "fixed", "%prod%{topic}_x"):
        assert outcomes(opened(topic=template).send([delivery("a", topic="orders.unpaid")], SEND_SECONDS)) == ["ok"]
    assert [message.topic.name for message in proxy.messages] == ["orders-unpaid", "fixed", "%prod%orders-unpaid_x"]


def test_a_topic_of_groups_takes_messages_without_an_ordering_key(proxy: FakeProxy, opened: Open) -> None:
    proxy.types = lambda topic: (MessageType.FIFO,)
    assert outcomes(opened().send([delivery("a"), delivery("b")], SEND_SECONDS)) == ["ok", "ok"]
    groups = {message.system_properties.message_group for message in proxy.messages}
    assert len(groups) == 2 and "" not in groups


def test_an_ordering_key_wants_a_topic_of_groups_unless_the_route_does_without(proxy: FakeProxy, opened: Open) -> None:
    proxy.types = lambda topic: (MessageType.NORMAL,)
    batch = [delivery("a", ordering_key="k"), delivery("b")]
    first, second = opened().send(batch, SEND_SECONDS)
    assert first.outcome == "unavailable" and "no message groups" in first.reason
    assert second.outcome == "ok"
    assert outcomes(opened(groups=False).send(batch, SEND_SECONDS)) == ["ok", "ok"]
    assert [message.system_properties.message_group for message in proxy.messages] == ["", "", ""]


@pytest.mark.parametrize("name", LATER)
def test_what_is_not_kept_as_safely_as_it_should_be_is_a_failure_unless_the_route_accepts_it(
    proxy: FakeProxy, opened: Open, name: str
) -> None:
    code = CODES[LATER.index(name)]
    proxy.answer = lambda message: code
    (result,) = opened().send([delivery("a")], SEND_SECONDS)
    assert result.outcome == "unknown"
    assert result.reason == f"{Code.Name(code)}: said by the test"
    assert outcomes(opened(accept=[name]).send([delivery("a")], SEND_SECONDS)) == ["ok"]
    others = [other for other in LATER if other != name]
    assert outcomes(opened(accept=others).send([delivery("a")], SEND_SECONDS)) == ["unknown"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (Code.ILLEGAL_MESSAGE_TAG, "rejected"), (Code.MESSAGE_BODY_TOO_LARGE, "rejected"),
        (Code.MESSAGE_BODY_EMPTY, "rejected"), (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "rejected"),
        (Code.TOPIC_NOT_FOUND, "unavailable"), (Code.FORBIDDEN, "unavailable"), (Code.UNAUTHORIZED, "unavailable"),
        (Code.TOO_MANY_REQUESTS, "unavailable"), (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "unavailable"),
        (Code.PROXY_TIMEOUT, "unknown"), (Code.INTERNAL_SERVER_ERROR, "unknown"), (0, "unknown"), (49_999, "unknown"),
    ],
)  # fmt: skip
def test_every_answer_but_ok_is_a_failure_of_its_kind(proxy: FakeProxy, opened: Open, code: int, outcome: str) -> None:
    proxy.answer = lambda message: code if message.body == b"bad" else Code.OK
    results = opened().send(
        [delivery("a", attempts=1), delivery("b", "bad", attempts=1), delivery("c", attempts=1)], SEND_SECONDS
    )
    assert outcomes(results) == ["ok", outcome, "ok"]
    assert proxy.requests == [1, 1, 1]  # nothing was sent again by itself
    assert "said by the test" in results[1].reason


def test_messages_of_a_topic_go_in_one_request(proxy: FakeProxy, opened: Open) -> None:
    batch = [
        delivery(str(number), topic="orders" if number % 2 else "payments") for number in range(2 * MOST_TOGETHER + 4)
    ]
    assert outcomes(opened().send(batch, SEND_SECONDS)) == ["ok"] * len(batch)
    assert sorted(proxy.requests) == [2, 2, MOST_TOGETHER, MOST_TOGETHER]
    assert sorted(message.user_properties["delayq_id"] for message in proxy.messages) == sorted(one.id for one in batch)


def test_a_large_message_one_with_a_group_and_one_that_failed_before_go_alone(proxy: FakeProxy, opened: Open) -> None:
    large = [delivery(str(number), bytes(MOST_BYTES // 4)) for number in range(6)]
    assert outcomes(opened().send([*large, delivery("large", bytes(MOST_BYTES + 1))], SEND_SECONDS)) == ["ok"] * 7
    assert sorted(proxy.requests) == [1, 2, 4]
    proxy.requests.clear()
    batch = [delivery("a"), delivery("b", ordering_key="k"), delivery("c", attempts=1), delivery("d")]
    assert outcomes(opened().send(batch, SEND_SECONDS)) == ["ok"] * 4
    assert sorted(proxy.requests) == [1, 1, 2]


def test_what_was_refused_because_of_a_neighbour_is_sent_alone_unless_it_may_be_there(
    proxy: FakeProxy, opened: Open
) -> None:
    batch = [delivery("a"), delivery("b", "bad"), delivery("c")]
    for code, told, requests in (
        (Code.ILLEGAL_MESSAGE_TAG, ["ok", "rejected", "ok"], [3, 1, 1, 1]),
        (Code.TOO_MANY_REQUESTS, ["unavailable"] * 3, [3]),
        (Code.INTERNAL_SERVER_ERROR, ["unknown"] * 3, [3]),
    ):
        proxy.answer = lambda message, code=code: code if message.body == b"bad" else Code.OK  # type: ignore[misc]
        proxy.requests.clear()
        assert outcomes(opened().send(batch, SEND_SECONDS)) == told
        assert proxy.requests == requests


@pytest.mark.parametrize("code", [Code.UNSUPPORTED, Code.NOT_IMPLEMENTED, Code.BAD_REQUEST])
def test_a_proxy_that_takes_one_message_a_request_gets_one(proxy: FakeProxy, opened: Open, code: int) -> None:
    proxy.together = code
    assert outcomes(opened().send([delivery("a"), delivery("b")], SEND_SECONDS)) == ["ok", "ok"]
    assert proxy.requests == [2, 1, 1]


def test_a_topic_that_there_is_not_is_no_fault_of_the_message_and_its_neighbours_are_sent(
    proxy: FakeProxy, opened: Open
) -> None:
    proxy.types = lambda topic: None if topic == "gone" else (MessageType.NORMAL,)
    target = opened()
    results = target.send([delivery("a", topic="gone"), delivery("b"), delivery("c", topic="gone")], SEND_SECONDS)
    assert outcomes(results) == ["unavailable", "ok", "unavailable"]
    assert "no topic gone" in results[0].reason
    proxy.types = lambda topic: (MessageType.NORMAL,)  # somebody makes it
    assert outcomes(target.send([delivery("a", topic="gone")], SEND_SECONDS)) == ["ok"]
    assert proxy.asked.count("orders") == 1


def test_a_topic_without_queues_takes_nothing(proxy: FakeProxy, opened: Open) -> None:
    proxy.queues = 0
    (result,) = opened().send([delivery("a")], SEND_SECONDS)
    assert (result.outcome, result.reason) == ("unavailable", "topic orders has no queue that can be written to")


def test_without_an_answer_in_time_it_may_have_arrived(proxy: FakeProxy, opened: Open) -> None:
    target = opened()
    assert outcomes(target.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    # As gRPC ends a call when its time is over, but not before the messages have arrived, however slow the machine is.
    proxy.end = grpc.StatusCode.DEADLINE_EXCEEDED
    results = target.send([delivery("b"), delivery("c")], SEND_SECONDS)
    assert outcomes(results) == ["unknown", "unknown"]
    assert results[0].reason == f"127.0.0.1:{proxy.port}: no answer in time"
    proxy.end = None
    proxy.hold()
    assert target.send([delivery("slow")], SHORT) == results[:1]  # by its own time-out, wherever it is by then
    proxy.release()
    assert outcomes(target.send([delivery("d")], SEND_SECONDS)) == ["ok"]
    assert [message.user_properties["delayq_id"] for message in proxy.messages].count("b") == 1


def test_a_message_whose_answer_is_late_keeps_no_other_one_waiting(proxy: FakeProxy, opened: Open) -> None:
    late = threading.Event()
    proxy.answer = lambda message: Code.OK if message.body == b"x" or late.wait() else 0
    results: list[Any] = []
    target = opened()
    sending = threading.Thread(
        target=lambda: results.extend(target.send([delivery("a", "late"), delivery("b")], SEND_SECONDS))
    )
    sending.start()
    eventually(lambda: len(proxy.messages) == 2, "both are sent")
    assert outcomes(target.send([delivery("c")], SEND_SECONDS)) == ["ok"]
    late.set()
    sending.join()
    assert outcomes(results) == ["ok", "ok"]


def test_while_the_proxy_is_away_nothing_is_taken_and_then_it_goes_on_at_once(proxy: FakeProxy, opened: Open) -> None:
    target = opened()
    assert outcomes(target.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    proxy.stop()
    eventually(lambda: outcomes(target.send([delivery("b")], SEND_SECONDS)) == ["unavailable"], "it is away")
    for _ in range(5):
        (result,) = target.send([delivery("b")], SEND_SECONDS)
        assert result.outcome == "unavailable" and "failed to connect" in result.reason
    proxy.start()
    eventually(lambda: outcomes(target.send([delivery("b")], SEND_SECONDS)) == ["ok"], "it is back")


def test_a_proxy_that_dies_over_a_message_may_have_taken_it(proxy: FakeProxy, opened: Open) -> None:
    target = opened()
    target.send([delivery("a")], SEND_SECONDS)
    dead = threading.Event()
    proxy.answer = lambda message: Code.OK if dead.wait() else 0
    results: list[Any] = []
    sending = threading.Thread(target=lambda: results.extend(target.send([delivery("b")], SEND_SECONDS)))
    sending.start()
    eventually(lambda: len(proxy.messages) == 2, "it is sent")
    proxy.stop()
    dead.set()  # the answer would have come now
    sending.join()
    assert outcomes(results) == ["unknown"]


def test_no_time_left_is_nothing_sent(proxy: FakeProxy, opened: Open) -> None:
    (result,) = opened().send([delivery("a")], 0)
    assert result.outcome == "unavailable" and "no time was left" in result.reason
    assert proxy.messages == []


def test_closing_waits_for_what_is_under_way_and_then_nothing_is_sent(proxy: FakeProxy, opened: Open) -> None:
    target = opened()
    target.send([delivery("a")], SEND_SECONDS)
    proxy.hold()
    results: list[Any] = []
    sending = threading.Thread(target=lambda: results.extend(target.send([delivery("b")], SEND_SECONDS)))
    sending.start()
    eventually(lambda: len(proxy.messages) == 2, "it is sent")
    closing = threading.Thread(target=target.close)
    closing.start()
    eventually(lambda: target._proxies._closed, "it is being closed")
    assert outcomes(target.send([delivery("c")], SEND_SECONDS)) == ["unavailable"]  # it takes nothing new
    assert closing.is_alive()
    proxy.release()
    for thread in (sending, closing):
        thread.join()
    assert outcomes(results) == ["ok"]
    assert len(proxy.messages) == 2


# -- settings ------------------------------------------------------------------------------------------------------------


def test_requests_are_signed_with_the_keys_and_the_secret_one_is_not_sent(
    proxy: FakeProxy, opened: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROCKETMQ_KEY", "canary-access")
    (tmp_path / "secret").write_text("canary-secret\n")
    target = opened(accessKey="env:ROCKETMQ_KEY", secretKey=f"file:{tmp_path / 'secret'}")
    assert outcomes(target.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    ((metadata),) = proxy.metadata
    assert "Credential=canary-access," in metadata["authorization"]
    assert "canary-secret" not in str(metadata)
