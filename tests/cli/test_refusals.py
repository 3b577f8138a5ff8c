from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import redis

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import free_port
from tests.cli.conftest import Cli, Given
from tests.support.proxy import FaultProxy

WHEN = ("--delay", "1h")

BAD_USE = {
    "no command": ((), "give a command"),
    "no command of a group": (("dead-letters",), "give a command"),
    "an unknown command": (("frobnicate",), "no such command 'frobnicate'"),
    "a command with a slip": (("canel", "a"), "did you mean 'cancel'?"),
    "an unknown option": (("stats", "--frobnicate"), "no such option: --frobnicate"),
    "an unknown option of all": (("--frobnicate",), "no such option: --frobnicate"),
    "no topic": (("schedule",), "missing argument 'TOPIC'"),
    "no id": (("get",), "missing argument 'ID'"),
    "no key": (("find",), "missing argument 'KEY'"),
    "one argument too many": (("get", "a", "b"), "unexpected extra argument"),
    "an option without its value": (("schedule", "t", "--delay"), "requires an argument"),
    "no due": (("schedule", "t", "x"), "exactly one of --delay, --at and --level"),
    "two dues": (("schedule", "t", "x", "--delay", "1h", "--level", "1"), "exactly one of"),
    "no new due": (("reschedule", "a"), "exactly one of"),
    "a wrong duration": (("schedule", "t", "x", "--delay", "soon"), "--delay: write a duration like '30m'"),
    "an empty duration": (("schedule", "t", "x", "--delay", ""), "--delay: write a duration"),
    "a negative delay": (("schedule", "t", "x", "--delay", "-5"), "--delay: lies between 0 and"),
    "a wrong date": (("schedule", "t", "x", "--at", "tomorrow"), "--at: write a date like"),
    "a date without a zone": (("schedule", "t", "x", "--at", "2030-01-01T00:00:00"), "--at: write a date"),
    "a date too far ahead": (("schedule", "t", "x", "--at", "9999999999999"), "--at: lies between"),
    "a date of too many digits": (("schedule", "t", "x", "--at", "9" * 5000), "--at: write a date"),
    "a wrong level": (("schedule", "t", "x", "--level", "two"), "invalid value for '--level'"),
    "level 0": (("schedule", "t", "x", "--level", "0"), "--level: lies between 1 and"),
    "a wrong topic": (("schedule", "a topic", "x", *WHEN), "TOPIC: 1 to 255 characters"),
    "a topic of our own": (("schedule", "delayq:x", "x", *WHEN), "not beginning with 'delayq:'"),
    "a wrong id": (("get", "a b"), "id: 1 to 128 characters"),
    "a wrong id of one's own": (("schedule", "t", "x", *WHEN, "--id", "a b"), "id: 1 to 128 characters"),
    "a key with a space": (("schedule", "t", "x", *WHEN, "--key", "a b"), "--key: a key is not empty"),
    "a key twice": (("schedule", "t", "x", *WHEN, "--key", "a", "--key", "a"), "--key: a key is given twice"),
    "a wrong key to find": (("find", "a b"), "KEY: a key is not empty"),
    "a wrong key to cancel": (("cancel", "--key", ""), "--key: a key is not empty"),
    "an empty key to deliver": (("deliver-now", "--key", ""), "--key: a key is not empty"),
    "a key with a blank to search for": (
        ("search", "--key", "a b"),
        "--key: a key is not empty and has no white space",
    ),
    "a key with a blank to find": (("find", "a b"), "KEY: a key is not empty and has no white space"),
    "a property without a value": (("schedule", "t", "x", *WHEN, "--property", "a"), "name=value, not 'a'"),
    "a property without a name": (("schedule", "t", "x", *WHEN, "--property", "=a"), "name=value"),
    "a property twice": (("schedule", "t", "x", *WHEN, "--property", "a=1", "--property", "a=2"), "given twice"),
    "no attempts": (("schedule", "t", "x", *WHEN, "--max-attempts", "0"), "--max-attempts: lies between 1"),
    "a wrong expiry": (("schedule", "t", "x", *WHEN, "--expire-after", "never"), "--expire-after: write"),
    "no expiry": (("schedule", "t", "x", *WHEN, "--expire-after", "0"), "--expire-after: lies between 1"),
    "a body twice": (("schedule", "t", "x", "--body-file", "-", *WHEN), "BODY or by --body-file, not both"),
    "a body file that is not there": (("schedule", "t", "--body-file", "/no/such", *WHEN), "cannot be read: No such"),
    "a body that is a folder": (("schedule", "t", "--body-file", "/", *WHEN), "cannot be read: Is a directory"),
    "a body that is no JSON": (("schedule", "t", "{", "--json-body", *WHEN), "BODY: it is no JSON value"),
    "a body nested too deeply": (("schedule", "t", "[" * 100_000, "--json-body", *WHEN), "BODY: it is no JSON"),
    "an argument of bytes": (("schedule", "t", "\udcff", *WHEN), "an argument is not UTF-8"),
    "nothing to cancel": (("cancel",), "say what to cancel"),
    "ids and a key to cancel": (("cancel", "a", "--key", "k"), "say what to cancel"),
    "nothing to redrive": (("dead-letters", "redrive"), "say what to put back"),
    "ids and all to redrive": (("dead-letters", "redrive", "a", "--all"), "say what to put back"),
    "nothing to discard": (("dead-letters", "discard"), "say which dead letters"),
    "no command of the era": (("era",), "give a command"),
    "a new era that nobody agreed to": (("era", "bump"), "say by --yes"),
    "a limit of 0": (("dead-letters", "list", "--limit", "0"), "invalid value for '--limit'"),
    "a wrong page token": (("dead-letters", "list", "--page-token", "zz"), "--page-token: is not a token"),
    "a wrong topic to tail": (("tail", "a topic"), "TOPIC: 1 to 255 characters"),
    "a count of 0": (("tail", "t", "--count", "0"), "invalid value for '--count'"),
    "no URL": (("stats", "--redis-url", ""), "the Redis URL is wrong"),
    "a URL of something else": (("stats", "--redis-url", "http://x"), "the Redis URL is wrong"),
    "a URL with a wrong port": (("stats", "--redis-url", "redis://h:port"), "the Redis URL is wrong"),
    "a URL with a port too high": (("stats", "--redis-url", "redis://h:99999"), "the Redis URL is wrong"),
    "a URL with a wrong host": (("doctor", "--redis-url", "redis://.."), "the Redis URL is wrong"),
    "a URL with an unknown option": (("tail", "t", "--redis-url", "redis://h?a=b"), "the Redis URL is wrong"),
}


@pytest.mark.parametrize("name", BAD_USE)
def test_bad_use_is_one_sentence_and_exit_2(cli: Cli, given: Given, name: str) -> None:
    command, sentence = BAD_USE[name]
    said = cli(*command).refused()
    assert sentence in said
    assert len(said) < 1_100
    assert given.client.stats()[0].counters["scheduled"] == 0


EVERY_COMMAND = [
    ("schedule", "t", "x", "--delay", "1h"), ("cancel", "a"), ("cancel", "--key", "k"),
    ("reschedule", "a", "--delay", "1h"), ("get", "a"), ("explain", "a"), ("find", "k"), ("search",), ("count",),
    ("forecast",), ("stats",), ("queues",),
    ("dead-letters", "list"), ("dead-letters", "redrive", "a"), ("dead-letters", "redrive", "--all"),
    ("dead-letters", "discard", "a"), ("tail", "t"), ("doctor",), ("doctor", "--repair"), ("nodes",), ("era", "show"),
    ("era", "bump", "--yes"),
]  # fmt: skip


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["plain", "json"])
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_a_redis_that_is_away_is_one_sentence(cli: Cli, command: tuple[str, ...], json: tuple[str, ...]) -> None:
    said = cli(*command, *json, "--redis-url", f"redis://127.0.0.1:{free_port()}/0").refused()
    assert "Redis is away" in said


def test_a_wrong_password_is_one_sentence(cli: Cli, given: Given) -> None:
    url = given.url.replace("redis://", "redis://somebody:wrong@")
    said = cli("stats", "--redis-url", url).refused()
    assert "Redis refused the credentials" in said
    assert "wrong@" not in said


def test_a_body_over_the_limit_is_refused_without_reading_it_all(
    cli: Cli, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_BODY_LIMIT", "10")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(2**40)
    assert cli("schedule", "t", "--body-file", tmp_path / "huge", *WHEN).refused() == (
        "BODY: at most 10 bytes; this has 11."
    )


def test_a_wrong_setting_is_one_sentence(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_TIMEOUT", "soon")
    assert cli("stats").refused().startswith("DELAYQ_REDIS_TIMEOUT: ")


def test_a_wrong_route_table_is_one_sentence(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_ROUTES", '[{"name": "a",\n"nonsense": 1}]')
    assert cli("schedule", "t", "x", *WHEN).refused().startswith("DELAYQ_ROUTES: ")


def test_a_topic_that_no_route_takes_is_refused(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_ROUTES", '[{"name": "a", "match": "a.*"}]')
    assert "no route takes 'b'" in cli("schedule", "b", "x", *WHEN).refused()


def test_another_layout_is_refused(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    given.client.context()
    monkeypatch.setenv("DELAYQ_QUEUES", "4")
    assert "16 queues, DELAYQ_QUEUES says 4" in cli("stats").refused()


def test_an_id_that_was_cancelled_is_refused(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    given.client.cancel("a")
    assert "was cancelled" in cli("schedule", "demo", "", "--id", "a", *WHEN).refused()


def test_a_full_redis_is_one_sentence(cli: Cli, alone: None) -> None:
    with EmbeddedServer(maxmemory="1mb") as full:
        said = cli("schedule", "t", "x" * 60_000, *WHEN, "--redis-url", full.url).refused()
    assert "maxmemory" in said


@pytest.mark.parametrize(
    "command",
    [
        ("schedule", "t", "x", "--delay", "1h"),
        ("cancel", "a"),
        ("reschedule", "a", "--delay", "1h"),
        ("dead-letters", "redrive", "a"),
        ("dead-letters", "discard", "a"),
        ("era", "bump", "--yes"),
    ],
    ids=" ".join,
)
def test_a_redis_that_would_lose_messages_is_refused(cli: Cli, alone: None, command: tuple[str, ...]) -> None:
    with EmbeddedServer(extra=["--maxmemory-policy", "allkeys-lru"]) as server:
        assert "maxmemory-policy is allkeys-lru" in cli(*command, "--redis-url", server.url).refused()
        with closing(redis.Redis(port=server.port)) as admin:
            assert admin.dbsize() == 0


@pytest.mark.parametrize(
    "command",
    [
        ("get", "a"),
        ("find", "k"),
        ("stats",),
        ("queues",),
        ("nodes",),
        ("doctor",),
        ("dead-letters", "list"),
        ("era", "show"),
        ("reshard", "--queues", "4", "--dry-run"),
    ],
    ids=" ".join,
)
def test_reading_writes_nothing(cli: Cli, alone: None, command: tuple[str, ...]) -> None:
    with EmbeddedServer() as server:
        cli(*command, "--redis-url", server.url)
        with closing(redis.Redis(port=server.port)) as admin:
            assert admin.dbsize() == 0


def test_the_redis_url_of_the_option_comes_before_the_one_of_the_environment(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    assert cli("stats", "--redis-url", given.url).code == 0


def test_what_is_refused_cannot_write_lines_or_colours_of_its_own(cli: Cli, given: Given) -> None:
    said = cli("schedule", "t\n\x1b[31mdelayq: all is well", "x", *WHEN, "--property", "\x1b[31m\n").refused()
    assert "\x1b" not in said


def test_an_unknown_outcome_says_the_id_to_repeat_with(cli: Cli, proxy: FaultProxy) -> None:
    command = ("schedule", "demo", "x", *WHEN, "--redis-url", proxy.url)
    proxy.drop_reply("schedule", 2)
    said = cli(*command).refused()
    match = re.search(r"repeat the same with --id (\S+), which is safe\.$", said)
    assert match is not None
    ran = cli(*command, "--id", match[1])
    assert (ran.rows[0][0], ran.rows[0][2]) == (match[1], "already scheduled")


def test_what_a_target_can_never_take_is_one_sentence(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_ROUTES", '[{"name": "shop", "target": "rocketmq://rocketmq.example:8081"}]')
    said = cli("schedule", "orders", "", *WHEN).refused()
    assert said == "BODY: is empty, and RocketMQ has no messages without a body."
    said = cli("schedule", "orders", "x", "--tags", "a||b", *WHEN).refused()
    assert said.startswith("--tags: RocketMQ takes one tag, without a '|'")
