"""Every form of a Redis URL."""

from __future__ import annotations

import pytest

from delayq.errors import ConfigError
from delayq.store.connect.address import CLUSTER, SENTINEL, SINGLE, Address, parse, without_secrets, without_user


def test_a_single_server_is_left_to_redis_py() -> None:
    for url in ("redis://h", "rediss://u:p@h:1/2", "unix:///run/redis.sock", "redis://[::1]:6379/0"):
        assert parse(url) == Address(kind=SINGLE, url=url)


def test_sentinels_name_a_service_and_its_servers_take_user_and_database() -> None:
    url = "redis+sentinel://me:p%40ss@one:26380,two/orders/3"
    found = parse(url)
    assert (found.kind, found.service, found.db, found.nodes) == (
        SENTINEL,
        "orders",
        3,
        (("one", 26380), ("two", 26379)),
    )
    assert found.url_of(("10.0.0.7", 6380)) == "redis://me:p%40ss@10.0.0.7:6380/3"
    assert found.url_of(("one", 26380), sentinel=True) == "redis://one:26380"


def test_sentinels_have_a_user_of_their_own_which_is_no_option_of_the_servers() -> None:
    url = "rediss+sentinel://me:a@one/orders?sentinel_username=asker&socket_timeout=1&sentinel_password=p%40+/s"
    found = parse(url)
    assert found.url_of(("one", 26379), sentinel=True) == "rediss://asker:p%40%2B%2Fs@one:26379?socket_timeout=1"
    assert found.url_of(("10.0.0.7", 6380)) == "rediss://me:a@10.0.0.7:6380/0?socket_timeout=1"
    assert parse("redis+sentinel://one/orders?sentinel_password=x").sentinel_user == ":x@"


def test_a_url_is_shown_without_secrets_and_asked_by_others_without_the_user() -> None:
    shown = {
        "redis://me:word@h:1/2?password=word": "redis://h:1/2",
        "redis+sentinel://:w@a,b/orders?sentinel_password=word": "redis+sentinel://a,b/orders",
        "unix:///run/redis.sock": "unix:///run/redis.sock",
        "word": "",
    }
    assert {url: without_secrets(url) for url in shown} == shown
    without = {
        "redis://me:word@h:1/2?password=word&db=3": "redis://h:1/2?db=3",
        "unix://me:word@/run/redis.sock?db=1": "unix:///run/redis.sock?db=1",
        "unix:///run/redis.sock?password=word": "unix:///run/redis.sock",
    }
    assert {url: without_user(url) for url in without} == without


def test_a_cluster_names_some_of_its_servers() -> None:
    found = parse("rediss+cluster://one,[::1]:7001/?ssl_cert_reqs=none")
    assert (found.kind, found.nodes, found.tls) == (CLUSTER, (("one", 6379), ("::1", 7001)), True)
    assert found.url_of(("::1", 7001)) == "rediss://[::1]:7001/0?ssl_cert_reqs=none"


SAME = [
    ("redis://h", "redis://h:6379/0", True),
    ("redis://h/1", "redis://h/0", False),
    ("redis+cluster://a:1,b:2", "redis+cluster://b:2,a:1", True),
    ("redis+cluster://a:1", "redis://a:1", False),
    ("redis+sentinel://a/x", "redis+sentinel://user:word@a/x/0", True),
    ("redis+sentinel://a/x", "redis+sentinel://a/y", False),
    ("redis://h?db=1", "redis://h/1", True),
    ("unix:///a%20b", "unix://me:word@/a b?db=0", True),
    ("unix:///a", "unix:///b", False),
    ("unix:///a?db=1", "unix:///a", False),
    ("unix://me:word@h:1/a?db=2", "redis://h:1/2", True),
    ("unix://h/a", "redis://h", False),
    ("unix://h/a", "unix://h/b", False),
    ("unix://h:1/a", "unix:///a", True),
    ("unix://h:1/a", "redis://h:1/2", False),
    ("unix://h:1/a", "redis://h:2", False),
    ("unix:///a", "redis:///a", False),
]


def test_two_urls_that_name_the_same_data() -> None:
    for one, other, same in SAME:
        assert parse(one).same_as(parse(other)) is same, (one, other)


WRONG = [
    ("", "begins with redis://"),
    ("http://h", "begins with redis://"),
    ("localhost:6379", "begins with redis://"),
    ("redis:", "begins with redis://"),
    ("redis://h:port", "[Pp]ort"),
    ("redis+cluster://", "names no host"),
    ("redis+cluster://h:1/2", "has no databases"),
    ("redis+cluster://h:1x", "[Pp]ort"),
    ("redis+cluster://:7000", "is no host:port"),
    ("redis+sentinel://h:1", "the name of the service"),
    ("redis+sentinel://h:1/name/x", "the database is a number"),
    ("redis+sentinel://h:1/a/0/b", "the name of the service"),
    ("redis+sentinel://h:1/a?sentinel_username=me", "goes with sentinel_password"),
    ("redis+sentinel://h:1/a?sentinel_password=", "must not be empty"),
]


def test_another_url_is_refused() -> None:
    for url, reason in WRONG:
        with pytest.raises(ConfigError, match=f"the Redis URL is wrong: .*{reason}"):
            parse(url)
