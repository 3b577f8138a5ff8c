"""What a namespace is: its name, its streams, its topics, and ids that are its own."""

from __future__ import annotations

import pytest

from delayq import Client, ConfigError, InvalidMessage, Message
from delayq.config import load_settings
from delayq.domain.message import check_in_namespace
from delayq.domain.routes import Route, Routes
from delayq.store.keys import Keys
from tests.support.servers import ServerUnderTest


def test_the_same_id_is_another_message_in_another_namespace(valkey: ServerUnderTest) -> None:
    with Client(valkey.url, namespace="shop") as shop, Client(valkey.url, namespace="shop2") as other:
        for client, body in ((shop, "of shop"), (other, "of the other")):
            made = client.schedule(Message(topic="orders", id="one", delay_time=3_600_000, body=body, keys=("k",)))
            assert made.created
        shop.pause("orders")
        assert shop.cancel("one").result == "cancelled"
        found = other.get("one")
        assert found is not None
        assert (found.state, [one.id for one in other.find("k")]) == ("scheduled", ["one"])
        assert (shop.find("k"), other.policies().pauses) == ([], {})
        assert [len(client.search().messages) for client in (shop, other)] == [0, 1]


@pytest.mark.parametrize("name", ["", "Shop", "a b", "a:b", "a{b", "x" * 33, "größe"])
def test_a_wrong_namespace_is_refused_in_one_sentence(valkey: ServerUnderTest, name: str) -> None:
    told = "DELAYQ_NAMESPACE: a namespace has 1 to 32 characters of a-z 0-9 _ -; choose another name; it is "
    with pytest.raises(ConfigError, match=told):
        Client(valkey.url, namespace=name)


def test_no_topic_of_a_namespace_has_a_key_of_delayq_as_its_stream(valkey: ServerUnderTest) -> None:
    keys = Keys("shop")
    names = [str(getattr(keys, name)) for name in Keys.__slots__ if name not in ("namespace", "pattern")]
    names += [keys.rate("a"), keys.slots("a"), keys.report("a"), keys.queue(3).pool, keys.queue(3).stream("a")]
    names += [keys.consumers("a", "b").leases, keys.consumers("a", "b").consumers]
    assert {name.partition(":")[0] for name in names} == {"shop"}
    with Client(valkey.url, namespace="shop") as client:
        for topic in (*(name.removeprefix("shop:") for name in names), "shop:a", "delayq:a"):
            with pytest.raises(InvalidMessage):
                client.schedule(Message(topic=topic, delay_time=0))
            with pytest.raises(InvalidMessage):
                client.receive(topic, group="g")
    check_in_namespace("meta", "delayq")
    with pytest.raises(InvalidMessage, match="names keys of delayq in the namespace 'shop'; choose another topic"):
        check_in_namespace("meta", "shop")


def test_streams_begin_with_the_namespace_unless_the_route_names_them() -> None:
    table = [
        Route(name="named", match="named.*", stream="mine:{topic}"),
        Route(name="queues", match="own.*", per_queue=True),
        Route(name="rest"),
    ]
    routes = Routes(table).within("shop")
    assert [one.stream_of("a") for one in routes.table] == ["mine:a", "a", "shop:a"]
    assert [one.stream_of("a") for one in Routes(table).within("delayq").table] == ["mine:a", "a", "a"]
    assert load_settings(namespace="shop").route_table().table[0].stream_of("a") == "shop:a"
    with pytest.raises(ConfigError, match=r"route r: a stream's name must not begin with 'shop:'.*; omit `stream`"):
        Routes([Route(name="r", stream="shop:{topic}")]).within("shop")


def test_the_root_in_zookeeper_is_that_of_the_namespace() -> None:
    given = {"zookeeper": "a:2181/chroot", "namespace": "shop"}
    assert load_settings(**given).zookeeper_path == "/chroot/shop"
    assert load_settings(**given, zookeeper_root="/mine").zookeeper_path == "/chroot/mine"
    assert load_settings(zookeeper="a:2181").zookeeper_path == "/delayq"
