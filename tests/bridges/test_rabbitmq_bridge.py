"""`delayq bridge rabbitmq` between a real broker and a real Redis."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from delayq import Client, Message
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import free_port
from testbed.rabbitmq import RabbitMQ
from tests.bridges.conftest import Bridges
from tests.support.amqp import Amqp, amqp
from tests.support.amqp_wire import RawProperties, encoded, field, long, timestamp
from tests.support.policies import put_policy
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.stuck_output import StuckOutput
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rabbitmq")]

HOUR = 3_600_000


def pending(client: Client) -> int:
    """How many messages are scheduled."""
    return sum(one.scheduled for one in client.queues())


def unanswered(broker: Amqp, queue: str) -> int:
    """Messages of the queue that nobody has acknowledged. The look starts a program: first wait for something cheaper."""
    listed = broker.server.control("list_queues", "name", "messages", "--no-table-headers")
    return next(int(line.split("\t")[1]) for line in listed.splitlines() if line.split("\t")[0] == queue)


def stopped(bridge: OneProcess) -> dict[str, int]:
    """End it in order; what it counted."""
    assert bridge.stop() == 0, bridge.said()
    found: dict[str, int] = json.loads(bridge.said().splitlines()[-1])
    return found


def works(client: Client, before: int, most: int) -> None:
    """Wait until more are scheduled than before, or all."""
    eventually(lambda: before < pending(client) or pending(client) == most, "it works")


def test_a_message_is_scheduled_and_then_acknowledged(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, bridges: Bridges
) -> None:
    exchange, queue = broker.exchange("direct"), broker.queue()
    broker.channel.queue_bind(queue, exchange, "orders.unpaid")
    bridge = bridges(rabbitmq, queue, valkey.url, "--json")
    says = f"delayq: taking the messages of the queue {queue} of RabbitMQ; Ctrl-C or SIGTERM ends it\n"
    eventually(lambda: says in bridge.said(), "it says so, though there is nothing to take")
    headers = {"x-delay": HOUR, "color": "blue", "delayq-keys": "order-42"}
    broker.publish(
        "orders.unpaid", b"\0\xff", exchange=exchange, message_id="a", headers=headers, content_type="image/png"
    )
    with Client(valkey.url) as client:
        found = eventually(lambda: client.get("a"), "it is scheduled")
        assert found is not None and found.record is not None
        record = found.record
        assert (record.topic, record.payload, record.keys) == ("orders.unpaid", b"\0\xff", ("order-42",))
        assert record.properties == {"color": "blue", "amqp-content-type": "image/png"}
        assert found.state == "scheduled"
    assert stopped(bridge) == {"scheduled": 1, "repeated": 0, "refused": 0}
    assert broker.count(queue) == 0, "it is acknowledged"
    assert bridge.said().count("taking") == 1


def test_what_can_never_be_scheduled_goes_to_the_dead_letter_exchange_and_its_neighbours_do_not(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, bridges: Bridges
) -> None:
    dead = broker.queue()
    queue = broker.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    with Client(valkey.url) as client:
        client.schedule(Message(topic="x", id="taken", delay_time=HOUR))
        client.cancel(client.schedule(Message(topic="x", id="cancelled", delay_time=HOUR)).id)
        broker.publish(queue, message_id="no-number", headers={"x-delay": "soon"})
        broker.publish(queue, message_id="far", headers={"x-delay": 10**15})
        broker.publish(queue, b"x" * 2_000, message_id="large", headers={"x-delay": HOUR})
        broker.publish(queue, message_id="taken", headers={"x-delay": HOUR})
        broker.publish(queue, message_id="cancelled", headers={"x-delay": HOUR})
        exchange = broker.exchange("fanout")
        broker.channel.queue_bind(queue, exchange)
        broker.publish("no topic!", exchange=exchange, message_id="no-topic")
        broker.publish(queue, message_id="good", headers={"x-delay": HOUR})
        bridge = bridges(rabbitmq, queue, valkey.url, "--json", body_limit="1000")
        eventually(lambda: client.get("good"), "the good one is scheduled")
        found = broker.take(dead, 6)
    refused = {"no-number", "far", "large", "taken", "cancelled", "no-topic"}
    assert {properties.message_id for properties, _ in found} == refused
    assert found[0][0].headers["x-death"][0]["reason"] == "rejected"
    assert stopped(bridge) == {"scheduled": 1, "repeated": 0, "refused": 6}
    assert broker.count(queue) == 0, "all are answered"
    said = bridge.said()
    assert f"delayq: refused no-number of the queue {queue}: x-delay: must be a number of ms, not 'soon'" in said
    assert all(f"refused {id} of the queue" in said for id in refused)
    assert "topic: must be 1 to 255 characters" in said


TIME = {b"x-delay": field("l", "q", HOUR)}
#: Properties and routing keys as producers write them that delayq cannot read, or keep.
ODD: dict[str, tuple[bytes, bytes]] = {
    "a-time-in-ms": (encoded(TIME | {b"created": timestamp(1_772_000_000_000)}), b"odd"),
    "a-time-before-1970": (encoded(TIME | {b"born": timestamp(-14_256_000)}), b"odd"),
    "a-name-in-latin-1": (encoded(TIME | {b"pr\xe9nom": field("I", "i", 1)}), b"odd"),
    "an-id-in-latin-1": (encoded(TIME, message_id=b"commande-\xe9"), b"odd"),
    "a-binary-correlation-id": (encoded(TIME, correlation_id=bytes(range(128, 144))), b"odd"),
    "a-routing-key-in-latin-1": (encoded(TIME), b"commande.\xe9"),
    "a-delay-that-is-no-number": (encoded({b"x-delay": b"S" + long(b"\xe9")}), b"odd"),
}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_that_nobody_can_read_are_refused_one_by_one_and_all_others_are_scheduled(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, bridges: Bridges, kind: str
) -> None:
    dead, exchange = broker.queue(), broker.exchange("fanout")
    more: dict[str, Any] = {"x_delivery_limit": 2} if kind == "quorum" else {}
    queue = broker.queue(x_queue_type=kind, x_dead_letter_exchange="", x_dead_letter_routing_key=dead, **more)
    broker.channel.queue_bind(queue, exchange)
    price = encoded(
        TIME | {b"price": field("d", "d", 19.99), b"tree": b"A" + long((b"A" + long(b"")) * 9)}, message_id=b"kept"
    )
    for number, (raw, key) in enumerate([*ODD.values(), (price, b"good")]):
        broker.channel.basic_publish(exchange, key, b"odd", RawProperties(raw))
        broker.publish("good", exchange=exchange, message_id=f"good-{number}", headers={"x-delay": HOUR})
    bridge = bridges(rabbitmq, queue, valkey.url, "--json")
    with Client(valkey.url) as client:
        eventually(lambda: pending(client) == len(ODD) + 2, "all others are scheduled")
        kept = client.get("kept")
        assert kept is not None and kept.record is not None and kept.record.properties == {"price": "19.99"}
    eventually(lambda: broker.count(dead) == len(ODD), "the odd ones are in the refused queue")
    assert stopped(bridge) == {"scheduled": len(ODD) + 2, "repeated": 0, "refused": len(ODD)}
    assert broker.count(queue) == 0, "all are answered"
    said = bridge.said()
    assert "retrying" not in said, "the connection stood all the time"
    for reason in (
        "headers: 'created': the time 1772000000000 is not between 1970 and 9999",
        "headers: 'born': the time -14256000",
        "headers: a name is not UTF-8: b'pr\\xe9nom'",
        "message-id: it is not UTF-8: b'commande-\\xe9'",
        "correlation-id: it is not UTF-8",
        "topic: the routing key is not UTF-8: b'commande.\\xe9'",
        "x-delay: must be a number of ms, not b'\\xe9'",
        "the header 'tree' is omitted where",
    ):
        assert reason in said


def test_a_broker_whose_name_is_not_known_does_not_hide_the_next_one(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, bridges: Bridges
) -> None:
    queue = broker.queue()
    broker.publish(queue, message_id="a", headers={"x-delay": HOUR})
    several = rabbitmq.amqp_url.replace("guest@", f"guest@{'x' * 64}.example,127.0.0.1:{free_port()},")
    bridge = bridges(rabbitmq, queue, valkey.url, "--url", several, "--json")
    with Client(valkey.url) as client:
        eventually(lambda: client.get("a"), "it is scheduled")
    assert stopped(bridge)["scheduled"] == 1


def test_a_log_that_nobody_reads_any_more_holds_up_neither_the_messages_nor_the_end(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, bridges: Bridges, tmp_path: Path
) -> None:
    queue = broker.queue()
    with StuckOutput(tmp_path / "bridge-0.log") as output:
        bridge = bridges(rabbitmq, queue, valkey.url)
        eventually(lambda: b"taking the messages" in output.said(), "it has started")
        output.stop_reading()
        for number in range(20):
            broker.publish(queue, message_id=f"bad-{number}", headers={"x-delay": "soon"})
        broker.publish(queue, message_id="good", headers={"x-delay": HOUR})
        with Client(valkey.url) as client:
            eventually(lambda: client.get("good"), "it is scheduled, whatever is said of the others")
        assert bridge.stop() == 0


def test_while_redis_is_away_nothing_is_acknowledged_and_later_all_is_scheduled(
    rabbitmq: RabbitMQ, broker: Amqp, own_valkey: EmbeddedServer, bridges: Bridges
) -> None:
    queue = broker.queue()
    with FaultProxy(own_valkey.port) as proxy:
        proxy.refuse()
        bridge = bridges(rabbitmq, queue, f"redis://127.0.0.1:{proxy.port}/0", "--json", "--prefetch", "50")
        for number in range(120):
            broker.publish(queue, message_id=f"m{number}" if number % 2 else None, headers={"x-delay": HOUR})
        eventually(lambda: "retrying" in bridge.said(), "it says that Redis is away")
        assert unanswered(broker, queue) == 120
        assert broker.count(queue) >= 70  # no more are taken than the prefetch allows
        proxy.heal()
        with Client(own_valkey.url) as client:
            eventually(lambda: pending(client) >= 120, "all are scheduled")
            eventually(lambda: unanswered(broker, queue) == 0, "all are acknowledged")
            assert pending(client) == 120
        assert "going on" in bridge.said()
        assert stopped(bridge)["refused"] == 0
    assert bridge.said().count("retrying") <= 3


def test_what_a_policy_has_no_room_for_waits_in_the_queue(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, bridges: Bridges
) -> None:
    queue = broker.queue()
    with Client(valkey.url) as client:
        put_policy(client, match="*", pending=5)
        bridge = bridges(rabbitmq, queue, valkey.url, "--json")
        for number in range(8):
            broker.publish(queue, message_id=f"m{number}", headers={"x-delay": HOUR})
        eventually(lambda: "has its maximum of" in bridge.said(), "it says that there is no room")
        eventually(lambda: pending(client) == 5, "there is no more room")
        eventually(lambda: unanswered(broker, queue) == 3, "the others wait")
        put_policy(client, match="*", pending=50)
        eventually(lambda: pending(client) == 8, "all are scheduled")
        assert stopped(bridge)["refused"] == 0


def test_replies_of_redis_that_are_lost_schedule_nothing_twice(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, proxy: FaultProxy, bridges: Bridges
) -> None:
    queue = broker.queue()
    for number in range(100):
        broker.publish(queue, str(number).encode(), headers={"x-delay": HOUR})  # without ids
    proxy.drop_reply("schedule", 4)
    bridge = bridges(rabbitmq, queue, proxy.url, "--json", redis_timeout="1s")  # it waits so long for lost replies
    with Client(valkey.url) as client:
        eventually(lambda: pending(client) == 100, "all are scheduled")
        eventually(lambda: unanswered(broker, queue) == 0, "all are acknowledged")
        assert pending(client) == 100
    counts = stopped(bridge)
    assert counts["scheduled"] + counts["repeated"] == 100 and counts["repeated"] > 0


def test_a_bridge_that_is_killed_loses_nothing_and_repeats_nothing_that_has_an_id(
    rabbitmq: RabbitMQ, broker: Amqp, own_valkey: EmbeddedServer, bridges: Bridges
) -> None:
    queue = broker.queue()
    for number in range(1_500):
        broker.channel.basic_publish(
            "", queue, b"x", broker.properties(message_id=f"m{number}", headers={"x-delay": HOUR})
        )
    with Client(own_valkey.url) as client:
        for _ in range(3):
            bridge = bridges(rabbitmq, queue, own_valkey.url, "--prefetch", "100")
            works(client, pending(client), 1_500)
            bridge.kill()
        last = bridges(rabbitmq, queue, own_valkey.url)
        eventually(lambda: pending(client) == 1_500, "all are scheduled")
        eventually(lambda: unanswered(broker, queue) == 0, "all are acknowledged")
        assert pending(client) == 1_500
        assert all(client.get_many([f"m{number}" for number in range(1_500)]))
        assert last.stop() == 0


def test_the_broker_is_killed_and_comes_back(rabbitmq: RabbitMQ, own_valkey: EmbeddedServer, bridges: Bridges) -> None:
    with amqp(rabbitmq) as broker:
        queue = broker.queue()
        broker.publish(queue, message_id="before", headers={"x-delay": HOUR})
    bridge = bridges(rabbitmq, queue, own_valkey.url, "--json")
    with Client(own_valkey.url) as client:
        eventually(lambda: client.get("before"), "it works")
        rabbitmq.kill()
        try:
            eventually(lambda: "retrying" in bridge.said(), "it notices")
        finally:
            rabbitmq.start()
        with amqp(rabbitmq) as broker:
            broker.queue(queue)  # RabbitMQ writes a new queue a little later than it says
            broker.publish(queue, message_id="after", headers={"x-delay": HOUR})
        eventually(lambda: client.get("after"), "it goes on")
        assert pending(client) == 2
    assert stopped(bridge)["refused"] == 0


def test_a_queue_that_was_deleted_is_looked_for_again(
    rabbitmq: RabbitMQ, broker: Amqp, valkey: ServerUnderTest, bridges: Bridges
) -> None:
    queue = broker.queue()
    broker.publish(queue, message_id="before", headers={"x-delay": HOUR})
    bridge = bridges(rabbitmq, queue, valkey.url, "--json")
    with Client(valkey.url) as client:
        eventually(lambda: client.get("before"), "it works")
        broker.channel.queue_delete(queue)
        eventually(lambda: f"the queue '{queue}' was deleted; retrying" in bridge.said(), "it notices")
        broker.queue(queue)
        broker.publish(queue, message_id="after", headers={"x-delay": HOUR})
        eventually(lambda: client.get("after"), "it goes on")
    assert "going on" in bridge.said()
    assert stopped(bridge)["scheduled"] == 2


def test_ctrl_c_ends_it_in_order(
    rabbitmq: RabbitMQ, broker: Amqp, own_valkey: EmbeddedServer, bridges: Bridges
) -> None:
    queue = broker.queue()
    for _ in range(500):
        broker.channel.basic_publish("", queue, b"x", broker.properties(headers={"x-delay": HOUR}))
    bridge = bridges(rabbitmq, queue, own_valkey.url, "--json", "--prefetch", "20")
    with Client(own_valkey.url) as client:
        eventually(lambda: pending(client) > 0, "it works")
        bridge.signal(signal.SIGINT)
        eventually(lambda: not bridge.alive, "it ends")
        assert bridge.returncode == 0
        eventually(lambda: unanswered(broker, queue) == broker.count(queue), "the rest is put back")
        # Each is scheduled, or in the queue still, and none is both.
        assert pending(client) + broker.count(queue) == 500


@pytest.mark.parametrize(
    ("queue", "more", "sentence"),
    [
        ("q", ["--url", "http://x"], "the URL must be amqp[s]://"),
        ("q", ["--url", "env:NOT_THERE"], "--url: the variable NOT_THERE is not set"),
        ("q", ["--topic", "{queue}"], "not of {queue}"),
        ("not-there", [], "no queue 'not-there'"),
        ("q", ["--url", "{url}:canary-word"], "ACCESS_REFUSED"),
        ("q", ["--url", "{url}/nowhere"], "nowhere"),
    ],
)
def test_what_can_never_work_ends_it_with_one_sentence(
    rabbitmq: RabbitMQ, valkey: ServerUnderTest, bridges: Bridges, queue: str, more: list[str], sentence: str
) -> None:
    urls = {
        "{url}:canary-word": rabbitmq.amqp_url.replace(":guest@", ":canary-word@"),
        "{url}/nowhere": rabbitmq.amqp_url.replace("%2F", "nowhere"),
    }
    bridge = bridges(rabbitmq, queue, valkey.url, *(urls.get(word, word) for word in more))
    eventually(lambda: not bridge.alive, "it ends")
    assert bridge.returncode == 2
    (line,) = bridge.said().splitlines()
    assert line.startswith("delayq: ") and sentence in line
    assert "canary" not in line
