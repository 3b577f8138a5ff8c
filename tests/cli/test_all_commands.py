"""Each command: what it prints, and that it refuses invalid words and a Redis that is away with one sentence."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from delayq.cli import app
from delayq.embedded.processes import free_port
from tests.cli.conftest import Cli, Given, answer
from tests.support.operations import COMMANDS_ONLY, OPERATIONS, Operation, fill

COMMANDS = [one for one in (*OPERATIONS, *COMMANDS_ONLY) if one.words]
CHANGES = [
    one for one in COMMANDS if one.method not in ("", "GET") or one.words in ("era bump --yes", "backfill undo r")
]
#: Tested with the files that they read, the servers that they reach, or nothing at all.
ELSEWHERE = {"api", "api-keys", "bridge", "coordinator", "dev", "export", "reconcile", "version", "worker"}


def test_the_table_has_every_command() -> None:
    words = {name for name, place in app._COMMANDS.items() if isinstance(place, str)}
    words |= {
        f"{name} {part}" for name, place in app._COMMANDS.items() if not isinstance(place, str) for part in place[1]
    }
    untested = {one for one in words if not any(f"{row.words} ".startswith(f"{one} ") for row in COMMANDS)}
    assert {one.partition(" ")[0] for one in untested} == ELSEWHERE, untested


def test_every_option_of_every_command_has_a_description() -> None:
    def commands(group: Any, words: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from commands(command, f"{words}{name} ")
            else:
                yield f"{words}{name}", command

    found = dict(commands(get_command(app._app("")), ""))
    assert found.keys() >= {"backfill", "api-keys new", "status"}
    without = [f"{words} {one.opts}" for words, command in found.items() for one in command.params if not one.help]
    assert without == []


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one.words)
def test_a_valid_command_prints_what_the_api_answers(cli: Cli, given: Given, one: Operation) -> None:
    fill(given.url)
    given.admin.xadd("orders.a", {"id": "m", "topic": "orders.a", "due": "1"})
    ran = cli(*shlex.split(one.words), "--json")
    printed = json.loads(ran.out)
    if one.same:
        expected = answer(given, one.url)
        assert timeless(printed) == timeless(expected)
    assert ran.code == (1 if one.words in FINDINGS else 0)


#: Their status says what they found.
FINDINGS = {"backfill undo r"}


def timeless(answer: Any) -> Any:
    """An answer without the time at which it was given."""
    if isinstance(answer, list):
        return [timeless(one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: None if name in ("now", "asOf") else timeless(value) for name, value in answer.items()}


def test_invalid_words_are_one_sentence_and_status_2(cli: Cli, given: Given) -> None:
    given.client.context()
    found = {}
    for one in COMMANDS:
        for words, sentence in one.refused:
            said = cli(*shlex.split(words)).refused()
            assert len(said) < 1_100
            if not said.startswith(sentence):
                found[words[:80]] = (said, sentence)
    assert not found, "\n".join(map(str, found.items()))
    assert given.client.queues()[0].counters["scheduled"] == 0


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["plain", "json"])
def test_a_redis_that_is_away_is_one_sentence_and_status_2(cli: Cli, json: tuple[str, ...]) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    for one in COMMANDS:
        # From the start, `tail` waits for Redis.
        words = one.words.partition(" --from-start")[0]
        assert (
            words == "me" or "Redis is unreachable" in cli(*shlex.split(words), *json, "--redis-url", url).refused()
        ), words


def test_what_changes_something_refuses_a_redis_that_would_lose_messages(cli: Cli, given: Given) -> None:
    given.admin.config_set("maxmemory-policy", "allkeys-lru")
    try:
        for one in CHANGES:
            said = cli(*shlex.split(one.words)).refused()
            assert "maxmemory-policy is allkeys-lru" in said, one.words
        assert given.admin.dbsize() == 0
    finally:
        given.admin.config_set("maxmemory-policy", "noeviction")


def test_what_only_reads_writes_nothing(cli: Cli, given: Given) -> None:
    for one in COMMANDS:
        if one not in CHANGES and not one.words.startswith("tail"):
            cli(*shlex.split(one.words))
            assert given.admin.dbsize() == 0, one.words
