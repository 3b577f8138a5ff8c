from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from delayq.base.errors import ConfigError, InvalidMessage, MissingExtra
from delayq.config import Settings
from delayq.domain.message import MOST, Limits
from delayq.domain.policies import Policy
from delayq.domain.routes import Route, Routes, load_routes
from delayq.targets import Target, open_target, register_target
from delayq.targets.redis_stream.target import is_local
from tests.support.messages import topics

REDIS = "redis://127.0.0.1:6379/0"


def names(routes: Routes, *wanted: str) -> list[str | None]:
    found = [routes.find(topic) for topic in wanted]
    return [route.name if route is not None else None for route in found]


@given(topics)
def test_without_a_table_every_topic_is_a_stream_of_its_name(topic: str) -> None:
    route = Routes().find(topic)
    assert route is not None
    assert route.stream_of(topic) == topic
    assert is_local(route, REDIS)
    for template, stream in {"events:{topic}:v1": f"events:{topic}:v1", "all": "all"}.items():
        assert Route(name="r", stream=template).stream_of(topic) == stream


def test_the_first_route_that_matches_takes_the_topic() -> None:
    routes = Routes([
        Route(name="exact", match="orders.paid", target="log:"),
        Route(name="one", match="orders.?", target="log:"),
        Route(name="many", match="orders.*", target="log:"),
        Route(name="end", match="*-eu", target="log:"),
        Route(name="dot", match="a.b", target="log:"),
    ])  # fmt: skip
    wanted = ("orders.paid", "orders.x", "orders.", "orders.xy", "orders", "users-eu", "users-eu-1", "Orders.x")
    assert names(routes, *wanted) == ["exact", "one", "many", "many", None, "end", None, None]
    assert names(routes, "a.b", "axb", "a.b.c") == ["dot", None, None]


# -- reading -------------------------------------------------------------------------------------------------------------

ROWS = [{"name": "kafka", "match": "orders.*", "target": "kafka://b", "maxAttempts": 3, "sendTimeout": 500}]


def test_a_table_is_read_from_json_toml_and_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="no PyYAML: pip install 'delayq[cli]'")
    file = tmp_path / "routes.json"
    file.write_text(json.dumps({"routes": ROWS}))
    for value in (json.dumps(ROWS), json.dumps({"routes": ROWS}), " " + json.dumps(ROWS), str(file)):
        (route,) = load_routes(value).table
        assert (route.name, route.target, route.max_attempts, route.send_timeout) == ("kafka", "kafka://b", 3, 500)
    toml, yaml = tmp_path / "routes.toml", tmp_path / "routes.yml"
    toml.write_text('[[routes]]\nname = "log"\nmatch = "a*"\ntarget = "log:"\n')
    yaml.write_text("routes:\n  - name: log\n    match: 'a*'\n    target: 'log:'\n")
    for file in (toml, yaml):
        assert names(load_routes(str(file)), "abc", "b") == ["log", None]
    assert names(load_routes("  "), "anything") == ["streams"]


def test_a_byte_order_mark_at_the_beginning_of_a_table_is_skipped(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="no PyYAML: pip install 'delayq[cli]'")
    mark = "\ufeff"
    assert [route.name for route in load_routes(f'{mark}[{{"name": "a"}}]').table] == ["a"]
    for name, text in {
        "a.json": '[{"name": "a"}]',
        "a.yaml": "routes: [{name: a}]",
        "a.toml": '[[routes]]\nname = "a"\n',
    }.items():
        (tmp_path / name).write_text(mark + text, encoding="utf-8")
        assert [route.name for route in load_routes(str(tmp_path / name)).table] == ["a"]


def said(value: str) -> str:
    """The one sentence in which a table is refused."""
    with pytest.raises(ConfigError) as caught:
        load_routes(value)
    text = str(caught.value)
    assert "\n" not in text
    return text


BROKEN = [
    "[", "{}", '{"routes": 5}', "5", '"text"', "[5]", "[{}]", '[{"name": 5}]', '{"rows": []}', "{routes}", "[null]",
    '[{"name": "a", "matches": "x"}]', '[{"name": "a", "maxAttempts": "3"}]', "\x00", "/no/such/file.json", "~nobody/x",
]  # fmt: skip


def test_a_broken_table_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in BROKEN:
        assert said(value).startswith("DELAYQ_ROUTES: "), value
    for name, content in {"a.json": b"\xff\xfe", "b.json": b"{", "c.toml": b"x = ", "d.toml": b"\xff"}.items():
        (tmp_path / name).write_bytes(content)
        assert said(str(tmp_path / name)).startswith("DELAYQ_ROUTES: ")
    wrong = {
        "twice.json": '[{"name": "a", "name": "b"}]',
        "field.toml": "[[routes]]\nname = 5\n",
        "route.json": '[{"name": ""}]',
    }
    wrong["reached.json"] = '[{"name": "a"}, {"name": "b"}]'
    for name, text in wrong.items():
        (tmp_path / name).write_text(text)
        assert said(str(tmp_path / name)).startswith(f"DELAYQ_ROUTES: {tmp_path / name}: "), name
    assert "Is a directory" in said(str(tmp_path))
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "routes.yaml").write_text("routes: []")
    assert "pip install 'delayq[cli]'" in said(str(tmp_path / "routes.yaml"))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"), ({"name": "a b"}, "name"), ({"name": "delayq:x"}, "name"),
    ({"path": "fast"}, "path must be 'auto' or 'general'"), ({"stream": "delayq:{topic}"}, "must not begin with 'delayq:'"),
    ({"stream": ""}, "must not be empty"), ({"stream": " "}, "must not be empty"),
    ({"stream": "events\n"}, "not begin or end with a space"),
    *(({"stream": stream}, f"the stream has {stray!r}, which is not {{topic}}, so all topics would share it")
      for stream, stray in {
          "{topc}": "{topc}", "x-{Topic}": "{Topic}", "{ topic }": "{ topic }", "{topic": "{", "topic}": "}", "{}": "{}",
          "orders-{7": "{",
      }.items()),
    ({"max_length": 0}, "maxLength must be from 1 to"), ({"max_length": MOST + 1}, "maxLength must be from 1 to"),
    ({"max_backlog": 0}, "maxBacklog must be from 1 to"), ({"max_backlog": MOST + 1}, "maxBacklog must be from 1 to"),
    ({"max_attempts": 0}, "maxAttempts must be from 1 to 1000"), ({"max_attempts": 1_001}, "maxAttempts must be from 1 to 1000"),
    ({"send_timeout": -1}, "sendTimeout must be from 1 to"), ({"send_timeout": 2**53 + 1}, "sendTimeout must be from 1 to"),
    ({"slack": -1}, "slack must be from 0 to 1000 ms"),
    ({"slack": 1_001}, "slack must be from 0 to 1000 ms"), ({"target": "kafka"}, "target must be a URL"),
    ({"target": ""}, "target must be a URL"),
    *(({"per_queue": True} | given, "route r: perQueue needs streams in delayq's own Redis")
      for given in ({"path": "general"}, {"target": "redis+stream://elsewhere"}, {"target": "log:"})),
]  # fmt: skip


UNREACHED = {
    "behind a pattern of everything": [("rest", "*"), ("late", "hooks.*")],
    "behind a broader pattern": [("orders", "orders.*"), ("late", "orders.eu.*")],
    "the same pattern": [("mail", "mail"), ("late", "mail")],
    "everything again": [("rest", "?*"), ("late", "*")],
}


@pytest.mark.parametrize("rows", UNREACHED.values(), ids=UNREACHED)
def test_a_route_that_gets_no_message_is_refused_with_its_pattern(rows: list[tuple[str, str]]) -> None:
    table = [{"name": name, "match": match, "target": "log:"} for name, match in rows]
    (first, _), (late, match) = rows
    told = said(json.dumps(table))
    assert told.startswith(f"DELAYQ_ROUTES: route {late}: its pattern {match!r} gets no message")
    assert f"the earlier route {first} " in told
    load_routes(json.dumps(table[::-1] if first != "mail" and first != "rest" else table[:1]))


@pytest.mark.parametrize("match", ["orders.[ab]", "{mail,sms}.*", "audit.* ", "news.*,blog.*", "", "delayq:*", "größe"])
def test_a_pattern_that_means_something_elsewhere_is_refused_with_the_name_of_its_route(match: str) -> None:
    told = said(json.dumps([{"name": "orders", "match": match}]))
    assert told.startswith(f"route orders: the pattern {match!r} must be 1 to 255 characters")


def test_a_route_knows_its_settings_that_its_target_ignores() -> None:
    for fields, unused in (
        (
            {"target": "https://h.example", "stream": "a", "max_length": 5, "allow": ("10.0.0.0/8",)},
            ("stream", "maxLength"),
        ),
        ({"target": "kafka://h", "max_length": 5}, ("maxLength",)),
        ({"target": "log:", "path": "general"}, ("path",)),
        ({"target": "own://h", "path": "general"}, ("path",)),
        ({"path": "general"}, ()),
        ({"target": "redis+stream://h", "stream": "a", "max_length": 5, "allow": ("h",)}, ("allow",)),
        ({"target": "own://h", "stream": "a", "max_length": 5, "allow": ("h",)}, ()),
        ({}, ()),
    ):
        assert Route(name="r", **fields).unused == unused
    routes = Routes([Route(name="hooks", match="h", target="https://h.example"), Route(name="rest")]).allowing(
        ["10.0.0.0/8"]
    )
    assert [(route.allow, route.unused) for route in routes.table] == [(("10.0.0.0/8",), ()), ((), ())]


@pytest.mark.parametrize(
    "stream", ["orders-{7}", "{7}", "{shop}:orders", "{shop}:{topic}", "{{topic}}", "{topic}-{topic}", "events"]
)
def test_a_stream_may_have_a_hash_tag_of_redis_cluster(stream: str) -> None:
    assert Routes([Route(name="r", stream=stream)]).table[0].stream_of("a") == stream.replace("{topic}", "a")


def test_the_bounds_of_a_route_are_those_of_the_setting_and_the_policy() -> None:
    Routes([Route(name="r", max_attempts=1_000, send_timeout=2**53, max_length=MOST, max_backlog=MOST)])
    Settings(max_attempts=1_000, send_timeout=2**53)
    Policy(name="p", match="*", max_attempts=1_000, retention_length=MOST).check(Limits())
    for field, above in (("max_attempts", 1_001), ("send_timeout", 2**53 + 1)):
        with pytest.raises(ConfigError):
            Settings(**{field: above})
    for policy in (
        Policy(name="p", match="*", max_attempts=1_001),
        Policy(name="p", match="*", retention_length=MOST + 1),
    ):
        with pytest.raises(InvalidMessage):
            policy.check(Limits())


def test_a_wrong_route_is_refused_in_one_sentence() -> None:
    for fields, about in WRONG:
        with pytest.raises(ConfigError) as caught:
            Routes([Route(**({"name": "r"} | fields))])
        assert about in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="two routes have the same name"):
        Routes([Route(name="a"), Route(name="a", match="x")])


# -- targets -------------------------------------------------------------------------------------------------------------


CLUSTER, SENTINEL = "redis+cluster://a:1,b:2", "redis+sentinel://a:1/orders"
#: delayq's Redis, the target, other fields of the route, whether the pull itself writes the stream.
LOCAL: list[tuple[str, str, dict[str, Any], bool]] = [
    (REDIS, "redis+stream:", {}, True),
    (REDIS, "redis+stream://", {}, True),
    (REDIS, "redis+stream://127.0.0.1", {}, True),
    (REDIS, "redis+stream://127.0.0.1:6379/0", {}, True),
    (REDIS, f"redis+stream:{REDIS}", {}, True),
    (REDIS, "redis+stream:", {"path": "general"}, False),
    (REDIS, "redis+stream://127.0.0.1:6380", {}, False),
    (REDIS, "redis+stream://127.0.0.1:6379/1", {}, False),
    (REDIS, "redis+stream://elsewhere", {}, False),
    (REDIS, "redis+stream:redis+cluster://127.0.0.1:6379", {}, False),
    (REDIS, "log:", {}, False),
    (REDIS, "redis+stream:", {"per_queue": True}, True),
    (CLUSTER, "redis+stream:", {}, False),
    (CLUSTER, "redis+stream:", {"per_queue": True}, True),
    (SENTINEL, "redis+stream:", {}, True),
    (SENTINEL, f"redis+stream:{SENTINEL}/0", {}, True),
    (SENTINEL, "redis+stream:redis+sentinel://a:1/users", {}, False),
]


def test_the_pull_itself_writes_only_streams_of_the_same_redis_and_in_a_cluster_only_the_queues_own() -> None:
    for redis_url, target, fields, local in LOCAL:
        assert is_local(Route(name="r", target=target, **fields), redis_url) is local, (redis_url, target, fields)


def test_a_wrong_redis_behind_a_target_and_an_unknown_scheme_are_refused() -> None:
    for target in ("http://h", "redis+cluster://", "redis+sentinel://h"):
        with pytest.raises(ConfigError, match="route r: the target's URL is wrong: the Redis URL is wrong"):
            open_target(Route(name="r", target=f"redis+stream:{target}"), REDIS)
    with pytest.raises(ConfigError, match="route r: the target's URL is wrong"):
        open_target(Route(name="r", target="redis+stream://host:port"), REDIS)
    with pytest.raises(ConfigError, match=r"route r: unknown kind of target mqtt:; known are .*log") as caught:
        open_target(Route(name="r", target="mqtt://x"), REDIS)
    assert not isinstance(caught.value, MissingExtra)


def test_a_registered_target_is_opened_with_its_url_route_and_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.targets._registered", {})
    seen: list[Any] = []

    def factory(url: str, route: Route, redis_url: str) -> Target:
        seen.extend((url, route.name, redis_url))
        raise ConfigError("enough")

    register_target("mine", factory)
    with pytest.raises(ConfigError, match="enough"):
        open_target(Route(name="r", target="mine://x/y"), REDIS)
    assert seen == ["mine://x/y", "r", REDIS]
    for url, kind in {"log:": "LogTarget", "redis+stream:": "RedisStreamTarget"}.items():
        target = open_target(Route(name="r", target=url), REDIS)
        assert type(target).__name__ == kind
        target.close()


SHOWN = {
    "redis+stream:": "redis+stream:",
    "log:": "log:",
    "https://hooks.example:8443/canary?token=canary#canary": "https://hooks.example:8443",
    "https://hooks.example": "https://hooks.example",
    "kafka://one:9092,two:9092/canary": "kafka://one:9092,two:9092",
    "rabbitmq://canary:canary@[::1]:5672/canary": "rabbitmq://[::1]:5672",
    "rabbitmq://u:can/ary@host/v": "rabbitmq://…",
    "rabbitmq://u:can@ary@host": "rabbitmq://host",
    "https://host/@canary": "https://host",
    "https://canary?@host": "https://canary",  # whatever stands there, it is the host
    "redis+stream://:canary@host:6379/0": "redis+stream://host:6379",
}


def test_only_the_kind_and_the_hosts_of_a_target_are_shown() -> None:
    assert {target: Route(name="r", target=target).shown_target for target in SHOWN} == SHOWN
