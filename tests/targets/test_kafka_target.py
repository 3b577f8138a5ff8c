"""The Kafka target before a producer of the test: settings, and what becomes of what the producer says."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from delayq import ConfigError
from delayq.domain.routes import Route
from delayq.targets import Result
from delayq.targets.kafka.target import KafkaTarget
from delayq.testing import ManualClock
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS, SEND_TIMEOUT
from tests.support.waiting import eventually

URL = "kafka://127.0.0.1:1"
SILENCE = object()


class FakeProducer:
    """Reports what `fate` says of a message at the next poll, or raises it; SILENCE is no report."""

    def __init__(self, settings: dict[str, Any], logger: logging.Logger) -> None:
        self.settings = settings
        self.logger = logger
        self.fate: Callable[[str], Any] = lambda id: None
        self.topics: list[str] = []
        self.closed = False
        self.purged = False
        self._waiting: list[tuple[Any, Any]] = []
        self._condition = threading.Condition()

    def produce(self, topic: str, value: bytes, key: str, headers: Any, on_delivery: Any) -> None:
        assert not self.closed
        self.fate_of(dict(headers)["id"], on_delivery)
        self.topics.append(topic)

    def fate_of(self, id: str, on_delivery: Any) -> None:
        fate = self.fate(id)
        if isinstance(fate, Exception):
            raise fate
        self.report(on_delivery, fate)

    def report(self, on_delivery: Any, fate: Any = None) -> None:
        with self._condition:
            self._waiting.append((on_delivery, fate))
            self._condition.notify()

    def poll(self, timeout: float) -> int:
        with self._condition:
            if not [one for one in self._waiting if one[1] is not SILENCE]:
                self._condition.wait(0.01)
            ready = [one for one in self._waiting if one[1] is not SILENCE]
            self._waiting = [one for one in self._waiting if one[1] is SILENCE]
        for report, fate in ready:
            report(fate, None)
        return len(ready)

    def purge(self) -> None:
        self.purged = True
        with self._condition:
            self._waiting = [(report, KafkaError(KafkaError._PURGE_QUEUE)) for report, _ in self._waiting]
            self._condition.notify()

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)

    def close(self) -> None:
        self.closed = True

    def __len__(self) -> int:
        return len(self._waiting)


class Opened:
    """Opens targets, and has the producers that they made."""

    def __init__(self) -> None:
        self.made: list[FakeProducer] = []
        self.targets: list[KafkaTarget] = []

    def __call__(
        self, url: str = URL, options: dict[str, Any] | None = None, send_timeout: int | None = SEND_TIMEOUT
    ) -> KafkaTarget:
        route = Route(name="k", target=url, send_timeout=send_timeout, options=options or {})
        self.targets.append(KafkaTarget(url, route, "", make=cast(Callable[..., Producer], self._make)))
        return self.targets[-1]

    def _make(self, settings: dict[str, Any], logger: logging.Logger) -> FakeProducer:
        self.made.append(FakeProducer(settings, logger))
        return self.made[-1]


@pytest.fixture
def opened() -> Iterator[Opened]:
    opens = Opened()
    yield opens
    for target in opens.targets:
        target.close()
    eventually(lambda: all(producer.closed for producer in opens.made), "all producers are closed")


# -- settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "kafka:", "kafka://", "kafka:///t", "kafka://h:x", "kafka://user:canary@h:1", "kafka://h:1?a=canary", "kafka://h,",
        "kafka://h#f",
    ],
)  # fmt: skip
def test_a_url_that_names_no_brokers_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="route k: a Kafka URL must be kafka://host:port,host:port/topic") as error:
        KafkaTarget(url, Route(name="k", target=url), "")
    assert "canary" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "servers", "topic"),
    [
        (URL, URL.removeprefix("kafka://"), "orders"),
        (URL + "/", URL.removeprefix("kafka://"), "orders"),
        ("kafka://a:1,b:2/delayed.{topic}", "a:1,b:2", "delayed.orders"),
        ("kafka://[::1]:9092/all", "[::1]:9092", "all"),
    ],
)
def test_a_url_names_brokers_and_topic(opened: Opened, url: str, servers: str, topic: str) -> None:
    assert outcomes(opened(url).send([delivery("a")], SEND_SECONDS)) == ["ok"]
    assert (opened.made[0].settings["bootstrap.servers"], opened.made[0].topics) == (servers, [topic])


def test_what_the_promise_rests_on_cannot_be_changed(opened: Opened) -> None:
    with pytest.raises(ConfigError, match=r"route k: unknown Kafka option 'acks'; known are .*sasl\.password"):
        opened(URL, {"acks": 1})
    opened(URL, {"linger.ms": 7, "compression.type": "lz4"})
    settings = opened.made[0].settings
    assert settings["enable.idempotence"] is True
    assert (settings["linger.ms"], settings["compression.type"]) == (7, "lz4")


def test_messages_are_given_up_before_the_time_out_of_a_send(opened: Opened) -> None:
    target = opened(send_timeout=None)
    assert opened.made[0].settings["message.timeout.ms"] == 28_000
    target.send([delivery("a")], 3.0)
    assert [made.settings["message.timeout.ms"] for made in opened.made] == [28_000, 1_500]
    eventually(lambda: opened.made[0].closed, "the first one is closed")
    target.send([delivery("b")], 3.0)
    assert len(opened.made) == 2


def test_secrets_come_from_the_environment_or_a_file(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_USER", "shop")
    (tmp_path / "password").write_text("canary\n")
    opened(URL, {"sasl.username": "env:KAFKA_USER", "sasl.password": f"file:{tmp_path}/password"})
    settings = opened.made[0].settings
    assert (settings["sasl.username"], settings["sasl.password"]) == ("shop", "canary")
    with pytest.raises(ConfigError, match=r"route k: sasl\.password: the variable NOT_THERE is not set"):
        opened(URL, {"sasl.password": "env:NOT_THERE"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("security.protocol", "telnet"), ("ssl.key.pem", "canary"), ("linger.ms", "canary"), ("linger.ms", [])],
)
def test_a_wrong_value_is_a_sentence_without_secrets(name: str, value: Any) -> None:
    options = {"security.protocol": "SSL", name: value}
    with pytest.raises(ConfigError, match="route k: ") as error:
        KafkaTarget(URL, Route(name="k", target=URL, options=options), "")
    assert "canary" not in str(error.value)


# -- outcomes ------------------------------------------------------------------------------------------------------------


def failing(code: int) -> Callable[[str], Any]:
    """Fails each message whose id begins with 'bad'."""
    return lambda id: KafkaError(code) if id.startswith("bad") else None


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "unavailable"),
        (KafkaError._UNKNOWN_TOPIC, "unavailable"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "unavailable"),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "unknown"),
        (KafkaError._MSG_TIMED_OUT, "unknown"),
        (KafkaError.REQUEST_TIMED_OUT, "unknown"),
        (KafkaError._PURGE_QUEUE, "unknown"),
    ],
)
def test_each_report_decides_for_its_message(opened: Opened, code: int, outcome: str) -> None:
    target = opened()
    opened.made[0].fate = failing(code)
    results = target.send([delivery("a"), delivery("bad"), delivery("c")], SEND_SECONDS)
    assert outcomes(results) == ["ok", outcome, "ok"]
    assert KafkaError(code).str() in results[1].reason
    assert len(opened.made) == 1


@pytest.mark.parametrize(
    "code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD]
)
def test_only_one_that_is_refused_alone_is_rejected(opened: Opened, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A broker refuses a batch of records as a whole: librdkafka reports its error for the innocent, too."""
    target = opened()
    opened.made[0].fate = failing(code)
    made = opened._make

    def make(settings: dict[str, Any], logger: logging.Logger) -> FakeProducer:
        producer = made(settings, logger)
        producer.fate = lambda id: KafkaError(code) if id == "bad-itself" else None
        return producer

    monkeypatch.setattr(target, "_make", make)
    results = target.send([delivery("bad-neighbour"), delivery("bad-itself"), delivery("c")], SEND_SECONDS)
    assert outcomes(results) == ["ok", "rejected", "ok"]
    assert results[1].reason == f"{KafkaError(code).str()} ({KafkaError(code).name()})"
    assert opened.made[1].settings["batch.num.messages"] == 1
    assert opened.made[1].topics == ["orders"] * 2


def test_what_the_producer_does_not_take_was_not_sent(opened: Opened) -> None:
    target = opened()
    fates = {
        "full": BufferError("Local: Queue full"),
        "large": KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)),
        "lost": KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC)),
    }
    opened.made[0].fate = fates.get
    wrong = [delivery(topic, topic=topic) for topic in ("a:b", "x" * 250, "..", ".")]
    results = target.send([*wrong, *map(delivery, ("a", "full", "large", "lost", "b"))], SEND_SECONDS)
    assert outcomes(results) == [*["rejected"] * 4, "ok", "unavailable", "rejected", "unavailable", "ok"]
    assert "'a:b' is not a Kafka topic" in results[0].reason
    assert results[5].reason == "the producer's queue is full"


def test_after_a_fatal_error_there_is_a_new_producer(opened: Opened) -> None:
    target = opened()
    fatal = KafkaError(KafkaError._FATAL, "out of order", True)
    opened.made[0].fate = lambda id: KafkaException(fatal)
    assert outcomes(target.send([delivery("a")], SEND_SECONDS)) == ["unavailable"]
    assert outcomes(target.send([delivery("a")], SEND_SECONDS)) == ["ok"]
    assert len(opened.made) == 2
    opened.made[1].settings["error_cb"](fatal)
    assert outcomes(target.send([delivery("b")], SEND_SECONDS)) == ["ok"]
    assert len(opened.made) == 3
    eventually(lambda: [made.closed for made in opened.made] == [True, True, False], "the broken ones are closed")


def test_what_is_wrong_with_the_brokers_is_told_with_the_time_out_and_not_for_ever(opened: Opened) -> None:
    target = opened()
    producer = opened.made[0]
    producer.settings["error_cb"](KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    producer.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    producer.fate = failing(KafkaError._MSG_TIMED_OUT)
    (result,) = target.send([delivery("bad")], SEND_SECONDS)
    assert result == Result.unavailable("Local: Message timed out (_MSG_TIMED_OUT); Connection refused")
    target.send([delivery("a")], SEND_SECONDS)
    (result,) = target.send([delivery("bad")], SEND_SECONDS)
    assert result == Result.unknown("Local: Message timed out (_MSG_TIMED_OUT)")


def test_lines_of_librdkafka_stay_out_of_the_log(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    """E1: Kafka's client tries to connect three times a second and logs each try.

    The worker's log has one line, and none for a route without messages.

    It tries to connect three times a second to brokers that are away, and logs each failure.
    """
    opened()
    opened.made[0].logger.error("Connect to ipv4#127.0.0.1:9092 failed: Connection refused")
    assert caplog.records == []


def test_a_message_that_was_handed_over_before_the_brokers_went_may_have_arrived(opened: Opened) -> None:
    target = opened()
    producer = opened.made[0]

    def fate(id: str) -> KafkaError:
        producer.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        return KafkaError(KafkaError._MSG_TIMED_OUT)

    producer.fate = fate
    told = [target.send([delivery("bad")], SEND_SECONDS)[0].outcome for _ in range(2)]
    assert told == ["unknown", "unavailable"]


def test_without_reports_nothing_is_left_to_be_sent_later(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = FakeProducer.report

    def report_at_once(producer: FakeProducer, on_delivery: Any, fate: Any = None) -> None:
        if fate is SILENCE:
            wait(producer, on_delivery, fate)
        else:
            on_delivery(fate, None)

    monkeypatch.setattr(FakeProducer, "report", report_at_once)
    target = opened()
    monkeypatch.setattr(target, "_clock", ManualClock())  # no time passes but the wait for reports
    target.send([delivery("a")], 0.1)
    opened.made[1].fate = lambda id: SILENCE if id == "b" else None
    results = target.send([delivery("a"), delivery("b")], 0.1)
    assert outcomes(results) == ["ok", "unknown"]
    assert [made.purged for made in opened.made] == [False, True]
    assert outcomes(target.send([delivery("b")], 0.1)) == ["ok"]


def test_the_end_waits_for_a_send_that_is_under_way_and_then_nothing_is_sent(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened()
    producer = opened.made[0]
    reports: list[Any] = []
    monkeypatch.setattr(producer, "fate_of", lambda id, report: reports.append(report))
    results: list[str] = []
    sending = threading.Thread(target=lambda: results.extend(outcomes(target.send([delivery("a")], SEND_SECONDS))))
    sending.start()
    eventually(lambda: reports, "it is with the producer")
    closing = threading.Thread(target=target.close)
    closing.start()
    eventually(lambda: target._closed, "it is closing")
    assert not producer.closed
    producer.report(reports[0])
    sending.join()
    closing.join()
    assert (results, producer.closed, producer.purged) == (["ok"], True, False)
    assert outcomes(target.send([delivery("late")], SEND_SECONDS)) == ["unavailable"]
    assert producer.topics == ["orders"]


def test_a_send_that_hangs_does_not_hold_up_the_end(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.targets.kafka.target.CLOSE_MS", 50)
    target = opened()
    opened.made[0].fate = lambda id: SILENCE
    results: list[str] = []
    sending = threading.Thread(target=lambda: results.extend(outcomes(target.send([delivery("a")], SEND_SECONDS))))
    sending.start()
    eventually(lambda: len(opened.made[0]), "it is with the producer")
    target.close()
    sending.join()
    assert results == ["unknown"] and opened.made[0].purged
