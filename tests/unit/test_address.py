"""Every form of a Redis URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq.base.errors import ConfigError
from delayq.store.connect.address import CLUSTER, SENTINEL, SINGLE, Address, parse, without_secrets, without_user
from delayq.store.connect.server_state import connection_options
from delayq.store.connect.store import Store
from tests.support.timeouts import PATIENCE


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
    url = "rediss+sentinel://me:a@one/orders?sentinel_username=asker&client_name=me&sentinel_password=p%40+/s"
    found = parse(url)
    assert found.url_of(("one", 26379), sentinel=True) == "rediss://asker:p%40%2B%2Fs@one:26379?client_name=me"
    assert found.url_of(("10.0.0.7", 6380)) == "rediss://me:a@10.0.0.7:6380/0?client_name=me"
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
    ("unix://h:1/a", "unix:///a", True),
    ("unix://h:1/a", "redis://h:1/2", False),
    ("unix://h:1/a", "redis://h:2", False),
    ("unix:///a", "redis:///0", False),
    ("redis:///0", "redis://localhost:6379?db=0", True),
]


def test_two_urls_that_name_the_same_data() -> None:
    for one, other, same in SAME:
        assert parse(one).same_as(parse(other)) is same, (one, other)


WRONG = [
    ("", "begin with redis://"),
    ("http://h", "begin with redis://"),
    ("localhost:6379", "begin with redis://"),
    ("redis:", "begin with redis://"),
    ("unix:/run/redis.sock", "begin with redis://"),
    # where it is
    ("redis://h:port", "a port must be a number"),
    ("redis://h:0", "a port must be a number"),
    ("redis://h:65536", "a port must be a number"),
    ("redis://:7000", "not host:port"),
    ("redis://one,two/0", "redis.sentinel:// or redis.cluster://"),
    *(
        (f"redis{kind}://{host}{rest}", "write an IPv6 address in brackets")
        for kind, rest in (("", "/0"), ("+cluster", ",b"), ("+sentinel", "/a"))
        for host in ("h:1:2", "2001:db8::1", "fe80::1:6379", "[::1]x:1", "[::1]:1:2", "[::1]6379")
    ),
    ("redis://a..b", "1 to 63 characters"),
    (f"redis+cluster://b,{'a' * 64}", "1 to 63 characters"),
    ("redis://h /0", "blank"),
    ("redis://h/0\n", "control character"),
    ("unix:///a\tb", "control character"),
    ("redis+cluster://", "names no host"),
    ("redis+cluster://a:1,", "not host:port"),
    ("redis+cluster://a:1,,b:2", "not host:port"),
    ("redis+cluster://h:1x", "a port must be a number"),
    ("redis+cluster://:7000", "not host:port"),
    ("unix://var/run/redis.sock", "three slashes"),
    ("unix://", "names no socket"),
    ("unix:///", "names no socket"),
    # which database
    ("redis://h/shop", "number of a database"),
    ("redis://h/1/2", "number of a database"),
    ("redis://h//1", "number of a database"),
    ("redis://h/-1", "number of a database"),
    ("redis://h/+1", "number of a database"),
    ("redis://h/\u0661", "number of a database"),
    ("redis://h/0x1", "number of a database"),
    ("redis://h/1?db=2", "db is also before the question mark"),
    ("redis://h?db=x", "db must be the number of a database"),
    ("redis://h?db=1&db=2", "db twice"),
    ("redis://h?db=", "db is empty"),
    ("redis+cluster://h:1/2", "has no databases"),
    ("redis+cluster://h:1?db=0", "the option db, which has no effect here"),
    ("redis+sentinel://h:1", "the name of the service"),
    ("redis+sentinel://h:1/name/x", "the database must be a number"),
    ("redis+sentinel://h:1/name/\u0661", "the database must be a number"),
    ("redis+sentinel://h:1/a/0/b", "the name of the service"),
    ("redis+sentinel://h:1/a?db=1", "the option db, which has no effect here"),
    # who
    ("redis://u:p@h?password=x", "password is also before the question mark"),
    ("redis://u:p@h?username=x", "username is also before the question mark"),
    ("redis+sentinel://h:1/a?password=x", "the option password, which has no effect here"),
    ("redis://h?sentinel_password=x", "the option sentinel_password, which has no effect here"),
    ("redis+sentinel://h:1/a?sentinel_username=me", "needs sentinel_password"),
    ("redis+sentinel://h:1/a?sentinel_password=", "sentinel_password is empty"),
    ("redis://:p#w@h/0", "write %23"),
    ("redis://h/0#1", "write %23"),
    # how
    *(
        (f"redis://h?{name}=1", f"the option {name}, which has no effect here; known options are")
        for name in (
            "health_check_interval", "max_connections", "retry_on_timeout", "retry_on_error", "protocol", "decode_responses",
            "encoding", "encoding_errors", "socket_read_size", "lib_name", "ssl", "credential_provider", "command_packer",
            "DB", "clientname",
        )
    ),
    ("redis://h?socket_timeout=1", "use DELAYQ_REDIS_TIMEOUT"),
    ("redis://h?timeout=1", "use DELAYQ_REDIS_TIMEOUT"),
    ("redis+cluster://h?max_connections=1", "max_connections, which has no effect here"),
    ("redis+sentinel://h/a?health_check_interval=1", "health_check_interval, which has no effect here"),
    ("redis://h?client_name=", "client_name is empty"),
    ("redis://h?client_name", "client_name is empty"),
    ("redis://h?client_name=a+b", "client_name must be visible ASCII"),
    ("redis://h?socket_keepalive=maybe", "socket_keepalive must be true or false"),
    ("redis://h?socket_connect_timeout=soon", "socket_connect_timeout must be a number of seconds"),
    ("redis://h?socket_connect_timeout=0", "socket_connect_timeout must be a number of seconds"),
    ("redis://h?ssl_ca_certs=a", "ssl_ca_certs needs TLS"),
    ("rediss://h?ssl_cert_reqs=perhaps", "ssl_cert_reqs must be none, optional or required"),
    ("unix:///a?socket_keepalive=1", "has no effect for a Unix socket"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "reason"), WRONG)
def test_what_a_url_says_and_what_would_do_nothing_is_refused_by_name(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"the Redis URL is wrong: .*{reason}"):
        parse(url)


def test_no_sentence_about_a_url_shows_its_password() -> None:
    for url in (
        "redis://me:se/cret@h/0", "redis://me:se?cret@h/0", "redis://me:se#cret@h/0", "redis://me:se cret@h/0",
        "redis+cluster://me:se/cret@h", "redis+sentinel://me:se?cret@h/a", "redis://h?password=secret&password=secret",
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            parse(url)
        assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "checked"),
    [("", True), ("?ssl_cert_reqs=optional", True), ("?ssl_cert_reqs=none", False), ("?ssl_check_hostname=no", False)],
)
def test_a_certificate_has_to_be_for_the_host_whatever_redis_py_thinks(options: str, checked: bool) -> None:
    assert connection_options(f"rediss://h{options}", 1.0)["ssl_check_hostname"] is checked


def test_what_is_accepted_is_handed_to_each_connection() -> None:
    url = "rediss://me:p%40ss@h:1/2?client_name=shop&socket_connect_timeout=0.5&socket_keepalive=no&ssl_cert_reqs=none&ssl_ciphers=a%2520b"
    found = connection_options(url, 2.0)
    for name, value in {
        "host": "h", "port": 1, "db": 2, "username": "me", "password": "p@ss", "client_name": "shop",
        "socket_connect_timeout": 0.5, "socket_keepalive": False, "ssl_cert_reqs": "none", "ssl_ciphers": "a%20b",
        "socket_timeout": 2.0, "protocol": 2,
    }.items():  # fmt: skip
        assert found[name] == value
    assert connection_options("unix://h:1/a%20b?db=3&username=me&password=x", 1.0).items() >= {
        "path": "/a b", "db": 3, "username": "me", "password": "x",
    }.items()  # fmt: skip


@pytest.mark.parametrize("url", ["redis://h", "rediss://h", "unix:///a"])
@pytest.mark.parametrize("timeout", [0.5, 2.0, PATIENCE])
def test_a_connection_may_take_half_of_the_timeout_however_long_that_is(url: str, timeout: float) -> None:
    assert connection_options(url, timeout)["socket_connect_timeout"] == timeout / 2


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_ca_path"])
def test_a_file_that_cannot_be_read_is_told_at_the_start(name: str, tmp_path: Path) -> None:
    for url in ("rediss://h?", "rediss+cluster://h?", "rediss+sentinel://h/a?"):
        with pytest.raises(ConfigError, match=f"the Redis URL is wrong: {name}: .*cannot read"):
            Store(f"{url}{name}={tmp_path}/missing")
