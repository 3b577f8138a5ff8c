"""What a real Kafka gets of a message, and what becomes of messages when it refuses them, dies or says nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from delayq.domain.routes import Route
from delayq.targets import Delivery, Result
from delayq.targets.kafka.producer import Make
from delayq.targets.kafka.target import KafkaTarget
from delayq.testing import ManualClock
from testbed.kafka import PASSWORD, USER, Kafka
from tests.house.processes import needs_proc
from tests.support.certificates import Authority
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS
from tests.support.waiting import eventually
from tests.targets.adapters.kafka import KafkaAdapter, consume, make_topic
from tests.targets.conftest import Closing

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kafka")]

#: A time-out that is to pass.
SHORT = 3.0
LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": USER}
PLAIN, SECURE = {"security.protocol": "SASL_PLAINTEXT", **LOGIN}, {"security.protocol": "SASL_SSL", **LOGIN}

Open = Callable[..., KafkaTarget]


class Telling(Producer):
    """Tells what is wrong with its brokers when it may: at once, or from its first message on.

    `found` is set once it knows of something, told or not, and `down` once it has told that it reaches none of them.
    """

    def __init__(self, settings: Mapping[str, Any], *, early: bool, **more: Any) -> None:
        self.found = threading.Event()
        self.down = threading.Event()
        self._may = threading.Event()
        if early:
            self._may.set()
        tell = settings["error_cb"]

        def wait_and_tell(error: KafkaError) -> None:
            self.found.set()
            self._may.wait()
            tell(error)
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self.down.set()

        super().__init__({**settings, "error_cb": wait_and_tell}, **more)

    def produce(self, *given: Any, **named: Any) -> None:
        self._may.set()
        super().produce(*given, **named)


@pytest.fixture
def opened(kafka: Kafka, closing: Closing) -> Open:
    """Opens a target, by default of the shared broker; it is closed at the end."""

    def open_one(url: str = "", seconds: float = SEND_SECONDS, make: Make = Producer, **options: object) -> KafkaTarget:
        route = Route(name="kafka", target=url or kafka.url, send_timeout=int(seconds * 1000), options=options)
        return closing(KafkaTarget(route.target, route, "", make=make))

    return open_one


def ids(kafka: Kafka, topic: str, count: int) -> list[str]:
    """The ids of all records of the topic."""
    return [one.id for one in KafkaAdapter(kafka).read(topic, count)]


def sent(target: KafkaTarget, id: str, topic: str, seconds: float = SEND_SECONDS, **fields: Any) -> bool:
    """Whether one attempt delivers the message."""
    return outcomes(target.send([delivery(id, topic=topic, **fields)], seconds)) == ["ok"]


def timed_out(target: KafkaTarget, batch: Sequence[Delivery]) -> Sequence[Result]:
    """The results of a send whose time-out passes while it waits for the broker, and nowhere else."""
    clock, target._clock = target._clock, ManualClock()  # type: ignore[assignment]  # a clock is a clock
    try:
        return target.send(batch, SHORT)
    finally:
        target._clock = clock


# -- records -------------------------------------------------------------------------------------------------------------


def test_a_message_becomes_a_record(kafka: Kafka, opened: Open, topic: str) -> None:
    body = bytes(range(256))
    fields = {"tags": "paid grün", "keys": ("k1", "k2"), "properties": {"id": "not the id", "ü": ""}}
    full = delivery("full", body, 2, topic=topic, ordering_key="customer 7", **fields)
    batch = [full, delivery("keys", topic=topic, keys=("k1", "k2")), delivery("none", b"", topic=topic)]
    assert outcomes(opened().send(batch, SEND_SECONDS)) == ["ok"] * 3
    records = consume(kafka.servers, topic, 3)
    assert [(record.key(), record.value()) for record in records] == [(b"customer 7", body), (b"k1", b"x"), (None, b"")]
    assert records[0].headers() == [
        ("id", b"full"),
        ("due", b"%d" % full.due),
        ("attempt", b"3"),
        ("content-type", b"application/octet-stream"),
        ("tags", "paid grün".encode()),
        ("keys", b"k1 k2"),
        ("ordering-key", b"customer 7"),
        ("p:id", b"not the id"),
        ("p:ü", b""),
    ]


def test_a_record_of_a_fixed_topic_has_the_messages_own_topic(kafka: Kafka, opened: Open, topic: str) -> None:
    target = opened(f"{kafka.url}/all.{topic}")
    batch = [delivery("a", topic="a:b"), delivery("b", topic="c")]
    assert outcomes(target.send(batch, SEND_SECONDS)) == ["ok"] * 2
    assert [one.topic for one in KafkaAdapter(kafka).read(f"all.{topic}", 2)] == ["a:b", "c"]


# -- refusals ------------------------------------------------------------------------------------------------------------


def test_one_that_is_too_large_is_rejected_and_its_neighbours_arrive(kafka: Kafka, opened: Open, topic: str) -> None:
    make_topic(kafka.servers, topic, {"max.message.bytes": "2000"})
    sizes = {20: 5_000, 30: 20_000}  # too much for the topic, too much for the client
    batch = [delivery(str(number), "x" * sizes.get(number, 300), topic=topic) for number in range(40)]
    results = opened(**{"message.max.bytes": 10_000}).send(batch, SEND_SECONDS)  # together far more than 2,000 bytes
    assert outcomes(results) == ["rejected" if number in sizes else "ok" for number in range(40)]
    assert results[20].reason == "Broker: Message size too large (MSG_SIZE_TOO_LARGE)"
    assert "Message size too large" in results[30].reason
    assert set(map(int, ids(kafka, topic, 38))) == set(range(40)) - sizes.keys()


def test_a_password_may_be_in_a_file_and_a_certificate_is_verified(
    kafka: Kafka, authority: Authority, opened: Open, tmp_path: Path, topic: str
) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    options = {**SECURE, "ssl.ca.location": str(authority.file), "sasl.password": f"file:{tmp_path}/password"}
    assert sent(opened(f"kafka://{kafka.secure_servers}", **options), "a", topic)
    assert ids(kafka, topic, 1) == ["a"]


@pytest.mark.parametrize(
    ("wrong", "early", "outcome", "said"),
    [
        ("certificate", True, "unavailable", "certificate verify failed"),  # there was no broker all the time
        (
            "certificate",
            False,
            "unknown",
            "certificate verify failed",
        ),  # nothing was sent, but librdkafka does not say so
        ("password", False, "unknown", "Authentication failed: Invalid username or password"),
    ],
)
def test_a_wrong_certificate_or_password_is_reported_without_secrets(
    kafka: Kafka, opened: Open, tmp_path: Path, topic: str, wrong: str, early: bool, outcome: str, said: str
) -> None:
    made: list[Telling] = []

    def make(settings: Mapping[str, Any], **more: Any) -> Telling:
        made.append(Telling(settings, early=early, **more))
        return made[-1]

    url, options = f"kafka://{kafka.login_servers}", {**PLAIN, "sasl.password": "canary"}
    if wrong == "certificate":
        url, options = f"kafka://{kafka.secure_servers}", {**SECURE, "sasl.password": PASSWORD}
        options["ssl.ca.location"] = str(Authority(tmp_path).file)
    target = opened(url, SHORT, make, **options)
    (made[0].down if early else made[0].found).wait()
    (result,) = timed_out(target, [delivery("a", topic=topic)])
    assert result.outcome == outcome
    assert said in result.reason
    assert "canary" not in result.reason and PASSWORD not in result.reason


# -- outages -------------------------------------------------------------------------------------------------------------


def test_a_broker_that_is_killed_and_back_loses_nothing(kafka: Kafka, opened: Open, topic: str) -> None:
    target = opened(seconds=SHORT)
    before = [delivery(f"before-{number}", topic=topic) for number in range(100)]
    assert outcomes(target.send(before, SEND_SECONDS)) == ["ok"] * 100
    kafka.kill()
    try:
        (result,) = timed_out(target, [delivery("during", topic=topic)])
    finally:
        kafka.start()
    assert result.outcome in ("unknown", "unavailable")  # it depends on when its loss was noticed
    eventually(lambda: sent(target, "during", topic), "it is delivered again")
    after = ids(kafka, topic, 101)
    assert after[:100] == [one.id for one in before]
    assert set(after[100:]) == {"during"}


def test_while_a_broker_says_nothing_messages_are_unknown_and_none_overtakes_afterwards(
    kafka: Kafka, opened: Open, topic: str
) -> None:
    target = opened(seconds=SHORT)

    def deliver(id: str) -> None:
        eventually(lambda: sent(target, id, topic, SHORT, ordering_key="key"), f"{id} is delivered")

    deliver("0")
    kafka.pause()
    try:
        results = timed_out(target, [delivery("1", topic=topic, ordering_key="key")])
    finally:
        kafka.resume()
    assert outcomes(results) == ["unknown"]
    for id in "123":
        deliver(id)
    arrived = ids(kafka, topic, 4)
    assert arrived == sorted(arrived)  # a second "1" may be there, but not behind "2"
    assert set(arrived) == set("0123")


def test_what_never_left_the_producer_is_not_sent_once_its_outcome_is_told(
    kafka: Kafka, opened: Open, topic: str
) -> None:
    target = opened(seconds=SHORT)
    kafka.pause()
    try:
        results = timed_out(target, [delivery(f"late-{number}", topic=topic) for number in range(50)])
    finally:
        kafka.resume()
    assert outcomes(results) == ["unknown"] * 50
    eventually(lambda: sent(target, "last", topic, SHORT), "the last is delivered")
    assert set(ids(kafka, topic, 1)) == {"last"}  # the topic was not known yet: nothing was on its way


def threads_of_librdkafka() -> set[str]:
    """The threads of this process that librdkafka started; other fixtures start threads, too."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().startswith("rdk:"):
                found.add(task.name)
    return found


@needs_proc
def test_no_thread_is_left_when_the_broker_says_nothing(kafka: Kafka, topic: str) -> None:
    before = threads_of_librdkafka()
    target = KafkaTarget(kafka.url, Route(name="kafka", target=kafka.url), "")
    assert sent(target, "a", topic)
    assert threads_of_librdkafka() - before, "threads that send"
    kafka.pause()
    try:
        sending = threading.Thread(target=target.send, args=([delivery("b", topic=topic)], SEND_SECONDS))
        sending.start()
        target.close()
        sending.join()
        eventually(lambda: not threads_of_librdkafka() - before, "all threads have ended")
    finally:
        kafka.resume()
