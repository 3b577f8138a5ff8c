"""Commands that call the HTTP API in place of Redis."""

from __future__ import annotations

import asyncio
import json
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.app import create_app
from api.server import make_server
from delayq.config import load_settings
from delayq.embedded.processes import LOCALHOST, free_port
from tests.cli.conftest import Cli, Given, answer
from tests.cli.test_all_commands import COMMANDS, timeless
from tests.http.conftest import Told
from tests.support.keys import KeyFile
from tests.support.operations import OPERATIONS, Operation, fill
from tests.support.timeouts import REDIS_TIMEOUT

#: Commands of an operation of the API.
OF_THE_API = [one for one in OPERATIONS if one.words] + [one for one in COMMANDS if one.words.startswith("explain")]
#: Options that only Redis has.
ONLY_REDIS = " --no-route-check"


class Serving:
    """An API on a thread of its own, as long as the block runs."""

    def __init__(self, redis_url: str, **given: str) -> None:
        settings = load_settings(
            redis_url=redis_url, redis_timeout=REDIS_TIMEOUT, api_host=LOCALHOST, api_port=free_port(), **given
        )
        self.url = f"http://{LOCALHOST}:{settings.api_port}"
        app = create_app(settings)
        self._server = make_server(app, settings, app.service.receivers.stop)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))

    def __enter__(self) -> Serving:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            threading.Event().wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join()


@pytest.fixture
def api(given: Given) -> Iterator[Serving]:
    with Serving(given.url) as serving:
        yield serving


@pytest.mark.parametrize("one", OF_THE_API, ids=lambda one: one.words)
def test_a_command_prints_the_same_by_the_api(
    cli: Cli, given: Given, api: Serving, monkeypatch: pytest.MonkeyPatch, one: Operation
) -> None:
    fill(given.url)
    expected = timeless(answer(given, one.url)) if one.same else None
    monkeypatch.delenv("DELAYQ_REDIS_URL")
    ran = cli(*shlex.split(one.words.replace(ONLY_REDIS, "")), "--json", "--api", api.url)
    assert (ran.code, ran.err) == (0, "")
    printed = timeless(json.loads(ran.out)) if ran.out else None  # without messages, `receive` prints nothing
    if one.same:
        assert printed == expected
    monkeypatch.setenv("DELAYQ_API_URL", api.url)
    assert cli(*shlex.split(one.words.replace(ONLY_REDIS, ""))).code in (0, 1)  # the second time, m may be cancelled


def test_every_other_command_says_that_it_needs_redis(cli: Cli, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ("doctor", "reshard --queues 8", "backfill undo r", "tail t", "era show", "era bump --yes"):
        assert (
            "the HTTP API has no endpoint for this command" in cli(*shlex.split(words), "--api", "http://a").refused()
        )
        with monkeypatch.context() as environment:
            environment.setenv("DELAYQ_API_URL", "http://a")
            assert "the HTTP API has no endpoint for this command" in cli(*shlex.split(words)).refused(), words


def test_the_key_is_that_of_the_environment(
    cli: Cli, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyFile(tmp_path / "keys.yaml")
    keys.add("own", {"orders.*": ["read", "schedule"]})
    with Serving(given.url, api_keys=str(keys.path)) as api:
        monkeypatch.setenv("DELAYQ_API_URL", api.url)
        assert "key" in cli("schedule", "orders.a", "x", "--delay", "1h").refused()
        monkeypatch.setenv("DELAYQ_API_KEY", keys.texts["own"])
        assert cli("schedule", "orders.a", "x", "--delay", "1h").code == 0
        assert "schedule" in cli("schedule", "mail", "x", "--delay", "1h").refused()
        assert cli("me").rows[0] == ["name", "own"]


def test_a_backfill_without_spark_goes_by_the_api(
    cli: Cli, given: Given, api: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DELAYQ_REDIS_URL")
    monkeypatch.setenv("DELAYQ_API_URL", api.url)
    rows = [
        {"id": f"r{n}", "topic": "orders", "expect_date": 2_000_000_000_000 + n, "body": {"n": n}} for n in range(9)
    ]
    rows[4]["topic"] = "two words"
    rows[5]["expect_date"] = 1_600_000_000_000
    table = tmp_path / "rows.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)))
    words = ("backfill", str(table), "--format", "json", "--local", "--run", "one", "--json")
    looked = cli(*words, "--dry-run")
    assert looked.code == 1
    assert json.loads(looked.out)["memory"] > 0
    for scheduled, before in ((7, 0), (0, 7)):
        ran = cli(*words, "--rate", "1000000")
        printed = json.loads(ran.out)
        assert ran.code == 1
        assert (printed["scheduled"], printed["alreadyThere"]) == (scheduled, before), printed
        assert printed["reasons"] == {"topic": 1, "past": 1}
    found = given.client.get("r3")
    assert found is not None
    assert found.record is not None
    assert (found.due, found.record.body) == (2_000_000_000_003, {"n": 3})
    assert "--api needs --local" in cli("backfill", str(table), "--api", api.url).refused()


def test_wrong_addresses_are_one_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, sentence in (
        (("--api", "localhost:8080"), "the URL of the API is wrong"),
        (("--api", ""), "--api: write the URL"),
        (("--api", "http://a", "--redis-url", "redis://b"), "--api and --redis-url exclude each other"),
    ):
        assert cli("get", "m", *words).refused().startswith(sentence)
    assert (
        "--no-route-check needs Redis"
        in cli("schedule", "t", "x", "--delay", "1h", "--no-route-check", "--api", "http://a").refused()
    )


def test_every_command_names_the_url_of_what_is_not_delayq(cli: Cli) -> None:
    server, page = Told(), b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"
    try:
        for one in OF_THE_API:
            if ONLY_REDIS in one.words:
                continue
            server.answers = [page]
            refused = cli(*shlex.split(one.words.format(id="a", key="k")), "--api", server.url).refused()
            assert refused.endswith("200 without an answer of delayq: is this the URL of its API?"), one.words
    finally:
        server.close()
