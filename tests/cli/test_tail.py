from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from delayq.base.clock import SystemClock
from delayq.base.local_time import shown
from delayq.cli.commands.tail import watch
from delayq.embedded import EmbeddedServer
from delayq.store.connect.store import Store
from tests.cli.conftest import Cli, Given, Ran
from tests.support.nodes import publish_routes
from tests.support.waiting import eventually

ENTRY: dict[str, Any] = {
    "id": "a", "topic": "demo", "tags": "t", "keys": "k1 k2", "body": "hello", "due": "1999999999958", "attempt": "1",
    "p:colour": "blue",
}  # fmt: skip
ARRIVED = "2000000000000-0"


def test_tail_prints_the_entries_of_a_topic_with_their_lateness(cli: Cli, given: Given) -> None:
    given.admin.xadd("demo", ENTRY, id=ARRIVED)
    given.admin.xadd("demo", ENTRY | {"id": "b", "body": b"\xff"}, id="2000000000000-1")
    ran = cli("tail", "demo", "--from-start", "--count", "1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.rows == [[shown(1_999_999_999_958), "+42 ms", "a", "t", "hello"]]
    first, second = map(json.loads, cli("tail", "demo", "--from-start", "--count", "2", "--json").out.splitlines())
    assert first == {
        "entry": ARRIVED, "id": "a", "topic": "demo", "tags": "t", "keys": ["k1", "k2"], "body": "hello",
        "dueTime": "2033-05-18T03:33:19.958Z", "dueMs": 1_999_999_999_958, "lateness": 42, "attempt": 1,
        "properties": {"colour": "blue"},
    }  # fmt: skip
    assert (second["id"], second["bodyBase64"]) == ("b", "/w==")


def test_tail_survives_entries_that_are_not_delayqs_and_escapes_bodies(cli: Cli, given: Given) -> None:
    given.admin.xadd("demo", {b"\xff": b"\xff", "due": "soon", "attempt": "9" * 5_000}, id="1-1")
    given.admin.xadd("demo", ENTRY | {"body": "\x1b]0;x\x07\nno line of its own", "tags": "\x1b[31m"}, id=ARRIVED)
    ran = cli("tail", "demo", "--from-start", "--count", "2")
    assert (ran.code, ran.rows[0], len(ran.rows)) == (0, ["-", "-", "-", "-", ""], 2)
    assert "\x1b" not in ran.out
    assert ran.rows[1][4] == "\\x1b]0;x\\x07\\nno line of its own"


class Tailing:
    """A command that runs in a thread while the test goes on."""

    def __init__(self, cli: Cli, *args: str) -> None:
        self._ran: list[Ran] = []
        self._thread = threading.Thread(target=lambda: self._ran.append(cli(*args)), daemon=True)
        self._thread.start()

    def end(self) -> Ran:
        self._thread.join()
        return self._ran[0]


def waits(given: Given) -> bool:
    return bool(given.admin.info("clients")["blocked_clients"])


@pytest.mark.parametrize("old", [True, False], ids=["behind what is there", "in a stream that is not there yet"])
def test_tail_waits_for_what_comes_next(cli: Cli, given: Given, old: bool) -> None:
    if old:
        given.admin.xadd("demo", ENTRY | {"id": "old"})
    tailing = Tailing(cli, "tail", "demo", "--count", "1")
    eventually(lambda: waits(given), "tail looks at the stream")
    given.admin.xadd("demo", ENTRY | {"id": "new"})
    assert [row[2] for row in tailing.end().rows] == ["new"]


def test_tail_finds_the_stream_and_its_redis_in_the_route_table(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_ROUTES", '[{"name": "a", "stream": "out.{topic}"}]')
    given.admin.xadd("out.demo", ENTRY)
    given.admin.xadd("other", ENTRY | {"id": "o"})
    assert cli("tail", "demo", "--from-start", "--count", "1").rows[0][2] == "a"
    assert cli("tail", "demo", "--from-start", "--count", "1", "--stream", "other").rows[0][2] == "o"
    other = given.url.replace("redis://", "redis+stream://").replace("/0", "/1")
    monkeypatch.setenv("DELAYQ_ROUTES", json.dumps([{"name": "a", "target": other}]))
    given.admin.execute_command("SELECT", 1)
    given.admin.xadd("demo", ENTRY | {"id": "b"})
    given.admin.execute_command("SELECT", 0)
    assert cli("tail", "demo", "--from-start", "--count", "1").rows[0][2] == "b"


def test_tail_says_that_a_topic_has_no_stream(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    for table, why in (
        ('[{"name": "a", "target": "log:"}]', "its route a has another target"),
        ('[{"name": "a", "match": "b"}]', "no route matches it"),
    ):
        monkeypatch.setenv("DELAYQ_ROUTES", table)
        assert why in cli("tail", "demo").refused()
    given.admin.xadd("demo", ENTRY)
    assert cli("tail", "demo", "--from-start", "--count", "1", "--stream", "demo").code == 0
    given.admin.set("text", "no stream")
    for words in ((), ("--from-start",)):
        assert cli("tail", "demo", "--stream", "text", *words).refused() == "the key text is not a stream."


def test_tail_goes_on_when_redis_comes_back(
    own_valkey: EmbeddedServer, alone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(own_valkey.url)

    def add(id: str) -> None:
        from delayq.store.commands import plain

        store.run(plain("XADD", "demo", "*", "id", id, read=lambda _: None))

    class WhileAway(SystemClock):
        def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
            own_valkey.start()
            add("second")
            return False

    add("first")
    entries = watch(store, "demo", from_start=True, step=50, clock=WhileAway())
    assert next(entries)[1][b"id"] == b"first"
    own_valkey.kill()
    assert next(entries)[1][b"id"] == b"second"
    assert "waiting for it" in capsys.readouterr().err


# A shell may start its background jobs with SIGINT ignored.
RUN = """
import signal, sys
from delayq.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


@pytest.mark.long
def test_ctrl_c_ends_tail_with_0_and_without_a_word(given: Given) -> None:
    given.admin.xadd("demo", ENTRY)
    command = [sys.executable, "-c", RUN, "tail", "demo", "--from-start", "--redis-url", given.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tailing:
        assert tailing.stdout is not None
        assert "hello" in tailing.stdout.readline()
        tailing.send_signal(signal.SIGINT)
        _, err = tailing.communicate()
    assert (tailing.returncode, err) == (0, "")


def test_tail_goes_by_the_routes_of_live_workers(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    given.admin.xadd("of-workers", ENTRY, id=ARRIVED)
    given.admin.xadd("here", ENTRY | {"id": "h"}, id=ARRIVED)
    monkeypatch.setenv("DELAYQ_ROUTES", json.dumps([{"name": "mine", "match": "*", "stream": "here"}]))
    words = ("tail", "demo", "--from-start", "--count", "1")
    assert cli(*words).rows[0][2] == "h"
    route = {"name": "all", "match": "*", "target": "redis+stream:"}
    publish_routes(given.url, [route | {"stream": "of-workers"}])
    assert cli(*words).rows[0][2] == "a"
    publish_routes(given.url, [route])  # into another Redis, whose login only the worker has
    assert "its route all has another target" in cli(*words).refused()
    publish_routes(given.url, [route | {"match": "x"}])
    assert "no route matches it" in cli(*words).refused()
