from __future__ import annotations

import re
from pathlib import Path

import pytest

from delayq.embedded import EmbeddedServer
from tests.cli.conftest import Cli, Given
from tests.support.proxy import FaultProxy

WHEN = ("--delay", "1h")

BAD_USE = {
    (): "no command given",
    ("frobnicate",): "no such command 'frobnicate'",
    ("schedule", "t\n\x1b[31mdelayq: all is well", "x", *WHEN, "--property", "\x1b[31m\n"): "--property: ",
    ("canel", "a"): "did you mean 'cancel'?",
    ("queues", "--frobnicate"): "no such option: --frobnicate",
    ("--frobnicate",): "no such option: --frobnicate",
    ("queues", "--redis-url", "http://x"): "the Redis URL is wrong",
}


def test_bad_use_is_one_sentence_and_status_2(cli: Cli, given: Given) -> None:
    for words, sentence in BAD_USE.items():
        said = cli(*words).refused()
        assert sentence in said
        assert "\x1b" not in said


def test_a_wrong_password_is_one_sentence(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    url = given.url.replace("redis://", "redis://somebody:wrong@")
    said = cli("queues", "--redis-url", url).refused()
    assert "Redis refused the credentials" in said
    assert "wrong@" not in said
    with monkeypatch.context() as patch:  # the URL of the option comes before that of the environment
        patch.setenv("DELAYQ_REDIS_URL", url)
        assert cli("queues", "--redis-url", given.url).code == 0


def test_a_body_over_the_limit_is_refused_without_reading_it_all(
    cli: Cli, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_BODY_LIMIT", "10")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(2**40)
    assert cli("schedule", "t", "--body-file", tmp_path / "huge", *WHEN).refused() == (
        "BODY: has 11 bytes; at most 10 are allowed."
    )


def test_settings_that_make_no_sense_are_one_sentence(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    given.client.context()
    shop = '[{"name": "shop", "target": "rocketmq://rocketmq.example:8081"}]'
    for name, value, command, sentence in (
        ("REDIS_TIMEOUT", "soon", "queues", "DELAYQ_REDIS_TIMEOUT: "),
        ("ROUTES", '[{"name": "a",\n"nonsense": 1}]', "schedule t x --delay 1h", "DELAYQ_ROUTES: "),
        ("QUEUES", "4", "queues", "Redis has 16 queues, but DELAYQ_QUEUES is 4"),
        ("ROUTES", shop, "schedule orders x --tags a||b --delay 1h", "--tags: RocketMQ takes one tag, without a '|'"),
        ("ROUTES", shop, "schedule orders --delay 1h", "BODY: is empty, and RocketMQ has no messages without a body."),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"DELAYQ_{name}", value)
            said = cli(*command.split()).refused()
        assert sentence in said


def test_a_time_zone_that_does_not_exist_is_one_sentence_and_nothing_is_scheduled(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_Yrok")
    for command in (
        ("schedule", "t", "x", "--at", "tomorrow 09:00", "--id", "m"),
        ("pause", "t", "--until", "09:00"),
        ("audit", "--from", "yesterday 09:00"),
    ):
        assert "TZ is 'America/New_Yrok'" in cli(*command).refused()
    assert given.client.get("m") is None
    assert cli("schedule", "t", "x", "--at", "2030-01-31T09:00:00-05:00", "--id", "m").code == 0


def test_a_full_redis_is_one_sentence(cli: Cli, alone: None) -> None:
    with EmbeddedServer(maxmemory="1mb") as full:
        said = cli("schedule", "t", "x" * 60_000, *WHEN, "--redis-url", full.url).refused()
    assert "maxmemory" in said


def test_an_unknown_outcome_says_the_id_to_repeat_with(cli: Cli, proxy: FaultProxy) -> None:
    command = ("schedule", "demo", "x", *WHEN, "--redis-url", proxy.url)
    proxy.drop_reply("schedule", 2)
    said = cli(*command).refused()
    match = re.search(r"to repeat the call safely, add --id (\S+)\.$", said)
    assert match is not None
    ran = cli(*command, "--id", match[1])
    assert (ran.rows[0][0], ran.rows[0][2]) == (match[1], "already scheduled")
