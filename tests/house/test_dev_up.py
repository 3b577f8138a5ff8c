"""./dev up as a person meets it: real processes, real signals."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.embedded.processes import free_port
from devtools.commandline import UsageError
from devtools.screen import Screen
from devtools.up import NEXT_PORTS, _port
from testbed.errors import ServerMissing
from testbed.zookeeper import available
from tests.house.processes import ROOT, children_of, command_of, is_running, needs_proc
from tests.support.terminal import AtTerminal, without_progress
from tests.support.timeouts import HTTP_TIMEOUT
from tests.support.waiting import eventually

pytestmark = needs_proc

DEV = [str(ROOT / "dev")]
#: Like a shell that starts a background job: SIGINT is ignored, and children inherit that.
IGNORING_SIGINT = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
PARTS = {"valkey": "valkey-server", "workers": "-m workers", "api": "-m api"}


class Up:
    """One ./dev up on ports and a folder of its own; `start` it again after it ended."""

    def __init__(self, folder: Path) -> None:
        self.api_port, self.redis_port = free_port(), free_port()
        self.data = folder / "data"
        self.output = folder / "output"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *options: str) -> list[str]:
        ports = ["--api-port", str(self.api_port), "--redis-port", str(self.redis_port)]
        return [*DEV, "up", *ports, *(options or ("--data", str(self.data)))]

    def start(self, *options: str) -> None:
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*IGNORING_SIGINT, *self.command(*options)],
                env=self.env,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )
        eventually(self._is_ready, f"./dev up is ready\n{self.text()}")

    def _is_ready(self) -> bool:
        assert self.running.poll() is None, self.text()
        return "delayq is ready" in self.text()

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def parts(self) -> dict[str, int]:
        """The pids of its children, by what they are."""
        commands = {pid: command_of(pid) for pid in children_of(self.running.pid)}
        return {part: pid for pid, command in commands.items() for part, name in PARTS.items() if name in command}

    def ask(self, path: str, body: object = None) -> Any:
        """What the API answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.api_port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=HTTP_TIMEOUT) as answer:
            return json.load(answer)

    def schedule(self, delay: str) -> str:
        """Schedule a message; return its id."""
        identity: str = self.ask("/v1/messages", {"topic": "house", "body": "x", "delayTime": delay})["id"]
        return identity

    def arrived(self) -> list[str]:
        """The ids in the topic's stream; none while the server starts."""
        with redis.Redis(port=self.redis_port, decode_responses=True) as client:
            try:
                entries: Any = client.xrange("house")
            except (redis.ConnectionError, redis.BusyLoadingError):
                return []
        return [fields["id"] for _, fields in entries]

    def wait_for(self, *identities: str) -> None:
        eventually(lambda: set(identities) <= set(self.arrived()), f"{identities} arrive\n{self.text()}")

    def keep(self) -> None:
        """Wait until a kill loses nothing that was written before: in the middle of an fsync the server does not even write
        until the disk is done, and answers nevertheless (row A2 of docs/faults.md)."""
        with redis.Redis(port=self.redis_port) as client:
            client.set("the last thing", "written")  # it waits for what its own connection has written
            assert client.execute_command("WAITAOF", 1, 0, 0)[0] == 1

    def queues_by_node(self) -> list[int]:
        """How many queues each live node owns."""
        nodes = self.ask("/v1/nodes")["nodes"]
        return sorted(len(node["queues"]) for node in nodes if not node["stale"])

    def end(self, number: signal.Signals) -> None:
        """Stop it by a signal: it ends with 0, and so do all its parts."""
        children = children_of(self.running.pid)
        os.killpg(self.running.pid, number)
        assert self.running.wait() == 0, self.text()
        assert [pid for pid in children if is_running(pid)] == []


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.terminate()
        made.process.wait()


@pytest.mark.long
def test_the_lines_of_the_readme_show_a_message_and_sigint_stops_everything(up: Up) -> None:
    up.start("--ephemeral")
    assert f"http://127.0.0.1:{up.api_port}/docs" in up.text()
    assert f"http://127.0.0.1:{up.api_port}/console/" in up.text()
    schedule, tail = re.findall(r"^  (.*\S*delayq (?:schedule|tail) .*)$", up.text(), re.MULTILINE)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = shlex.quote(str(Path(sys.executable).parent / "delayq"))
    assert all(f"\n.venv/bin/delayq{line.rpartition(ours)[2]}\n" in readme for line in (schedule, tail))
    # Beside another ./dev up of this checkout, the lines begin with the address of this one's Redis.
    pasted = ["bash", "-c", f"{schedule}\nexec env {tail}"]
    with subprocess.Popen(pasted, stdout=subprocess.PIPE, text=True, env=up.env) as watching:
        assert watching.stdout is not None
        try:
            identity = watching.stdout.readline().split("\t")[0]
            _, _, arrived, _, body = watching.stdout.readline().rstrip("\n").split("\t")
        finally:
            watching.terminate()  # tail has no end, and the block waits for one
    assert (arrived, body) == (identity, "world")
    folder = Path(f"/proc/{up.parts()['valkey']}/cwd").readlink()
    up.end(signal.SIGINT)
    assert not folder.exists()


@pytest.mark.long
def test_the_time_of_a_development_delayq_is_moved_as_the_page_says(up: Up) -> None:
    up.start("--dev")
    (line,) = re.findall(r"moved by `(.*dev advance 30m)`", up.text())
    page = (ROOT / "docs" / "tasks" / "test-my-code.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"dev:advance .* -d '(.*)'", page)
    first, second = up.schedule("29m"), up.schedule("50m")
    assert up.ask("/v1/dev:advance", json.loads(body))["ahead"] == 1_800_000
    assert up.arrived() == [first]
    subprocess.run(["bash", "-c", line], env=up.env, check=True, capture_output=True)
    assert up.arrived() == [first, second]
    up.end(signal.SIGINT)


class Hook(BaseHTTPRequestHandler):
    """An endpoint of a caller; `server.taken` has the topics and bodies of its requests."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.taken.append((self.headers["ce-type"], body))  # type: ignore[attr-defined]  # set by the test
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.long
def test_a_webhook_of_this_machine_is_called_by_the_command_of_its_page(up: Up) -> None:
    page = (ROOT / "docs" / "targets-webhooks.md").read_text(encoding="utf-8")
    (routes,) = re.findall(r"^DELAYQ_ROUTES='(.*)' \./dev up$", page, re.MULTILINE)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        taken = server.taken = []  # type: ignore[attr-defined]  # for the handler
        threading.Thread(target=server.serve_forever, daemon=True).start()
        up.env["DELAYQ_ROUTES"] = routes.replace(":8000/", f":{server.server_port}/")
        up.start("--ephemeral")
        up.ask("/v1/messages", {"topic": "orders.unpaid", "body": "order 42", "delayTime": "1ms"})
        eventually(lambda: taken, "the webhook was called")
        up.end(signal.SIGHUP)
        server.shutdown()
    assert taken == [("orders.unpaid", "order 42")]


@pytest.mark.long
def test_where_a_service_refuses_to_start_the_others_stop_in_order(up: Up) -> None:
    up.env["DELAYQ_ROUTES"] = '[{"name": "hooks", "target": "http://10.0.0.1/"}]'
    ran = subprocess.run(up.command("--ephemeral"), env=up.env, cwd="/", capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "10.0.0.1 is not public (private)" in ran.stderr
    assert "refused to start" in ran.stderr
    assert "was killed" not in ran.stderr


@pytest.mark.long
def test_at_a_terminal_it_speaks_in_words_and_ctrl_c_is_one_line(up: Up) -> None:
    with AtTerminal(up.command("--ephemeral"), cwd=Path("/"), env=up.env) as terminal:
        eventually(lambda: "Ctrl-C stops everything" in terminal.text, "it is ready")
        children = children_of(terminal.process.pid)
        eventually(lambda: "owns queues 0-15" in terminal.plain, "the worker owns its queues")
        worker = next(pid for pid in children if "-m workers" in command_of(pid))
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: terminal.plain.count("owns queues 0-15") == 2, f"a new worker owns them\n{terminal.plain}")
        terminal.press_ctrl_c()
        assert terminal.wait() == 0
        plain = terminal.plain
    assert "{" not in plain
    assert re.search(r"^\d\d:\d\d:\d\d  API        listens on 127\.0\.0\.1:\d+$", plain, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d  dev        worker died and is restarted; signal 9$", plain, re.MULTILINE)
    (last,) = re.findall(r"^\d\d:.*$", plain.split("owns queues 0-15\n")[2], re.MULTILINE)
    assert re.fullmatch(r"\d\d:\d\d:\d\d  dev        everything stopped in order", last)
    assert [pid for pid in children if is_running(pid)] == []


@pytest.mark.long
def test_what_is_killed_comes_back_and_the_next_start_goes_on(up: Up) -> None:
    up.start()
    scheduled = []
    for part in ("valkey", "api"):
        scheduled.append(eventually(lambda: _scheduled(up, "1s"), "the API answers"))
        before = up.parts()
        up.keep()
        os.kill(before[part], signal.SIGKILL)
        eventually(lambda: up.parts().get(part, before[part]) != before[part], f"{part} is started again")  # noqa: B023
        up.wait_for(*scheduled)
        assert {**up.parts(), part: 0} == {**before, part: 0}

    for alone in (True, False):  # ./dev alone, whose children then end by themselves; then all at once
        eventually(lambda: f":{up.api_port}" in up.text() and up.parts().keys() == PARTS.keys(), "all parts run")
        scheduled.append(eventually(lambda: _scheduled(up, "3s"), "the API answers"))
        up.keep()
        children = children_of(up.running.pid)
        for pid in (up.running.pid, *(() if alone else children)):
            os.kill(pid, signal.SIGKILL)
        assert up.running.wait() == -signal.SIGKILL
        up.start()
        up.wait_for(*scheduled)
        eventually(lambda: not any(map(is_running, children)), "the first children ended")  # noqa: B023
    arrived = up.arrived()
    assert [arrived.count(identity) for identity in scheduled] == [1] * len(scheduled)


def _scheduled(up: Up, delay: str) -> str:
    """The id of a message, or nothing while the API starts again."""
    try:
        return up.schedule(delay)
    except OSError:
        return ""


@pytest.mark.long
def test_three_workers_share_the_queues_and_one_that_is_killed_comes_back(up: Up) -> None:
    try:
        available()
    except ServerMissing as error:
        pytest.skip(str(error))
    up.start("--data", str(up.data), "--workers", "3", "--zookeeper")
    eventually(lambda: up.queues_by_node() == [5, 5, 6], f"all queues have owners\n{up.text()}")
    victim = next(pid for pid in children_of(up.running.pid) if "-m workers" in command_of(pid))
    os.kill(victim, signal.SIGKILL)
    up.wait_for(*(up.schedule("0s") for _ in range(32)))  # enough to meet every queue
    eventually(lambda: up.queues_by_node() == [5, 5, 6], f"all share again\n{up.text()}")
    up.end(signal.SIGTERM)


@pytest.mark.long
def test_a_port_in_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for option in ("--api-port", "--redis-port"):
            command = [*DEV, "up", option, port, "--data", str(tmp_path / "data")]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ran.returncode == 2
            assert without_progress(ran.stderr) == f"dev: port {port} is in use; choose another one with {option}\n"


@pytest.mark.release
def test_the_demo_has_all_that_there_is_to_see(up: Up) -> None:
    up.start("--demo")
    soon = f"/v1/forecast?step=1m&dueTo={int((time.time() + 20 * 60) * 1000)}"
    by_hand = {"pause", "resume", "putPolicy", "redrive", "deliverNow"}

    def bank() -> Any:
        return next(one for one in up.ask("/v1/routes")["routes"] if one["name"] == "bank")

    def newsletter() -> Any:
        return up.ask("/v1/topics/newsletter.weekly")

    def orders() -> Any:
        return up.ask("/v1/messages?topic=orders.*&tags=web")["messages"]

    looks: dict[str, Callable[[], object]] = {
        "messages of a paused topic are held": lambda: newsletter().get("pause") and newsletter()["held"],
        "a target takes nothing": lambda: bank()["parked"] and "closed for maintenance" in json.dumps(bank()),
        "a burst is ahead": lambda: max(one["messages"] for one in up.ask(soon)["buckets"]) >= 20_000,
        "dead letters are of several groups": lambda: len(up.ask("/v1/dead-letters:groups")["groups"]) >= 2,
        "a message is tried again": lambda: up.ask("/v1/messages?topic=labels.*&state=retrying")["messages"],
        "messages have keys and tags": lambda: any(one["message"]["keys"] for one in orders()),
        "orders are paid": lambda: up.ask("/v1/queues")["total"]["counters"]["cancelled"],
        "a topic is held to its limit": lambda: up.ask("/v1/topics/sms.code")["held"],
        "operators do something": lambda: by_hand <= {one["action"] for one in up.ask("/v1/audit")["entries"]},
        "the census knows the topics": lambda: sum("counts" in one for one in up.ask("/v1/topics")["topics"]) >= 8,
        "the target takes what was parked": lambda: bank()["parked"] == 0,
    }
    for what, look in looks.items():
        eventually(look, f"{what}\n{up.text()}")


def test_where_a_usual_port_is_in_use_the_next_free_one_is_taken_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    usual = free_port()
    screen = Screen()
    assert _port(None, usual, "--api-port", screen) == usual
    assert capsys.readouterr().err == ""
    with socket.create_server(("127.0.0.1", usual)):
        found = _port(None, usual, "--api-port", screen)
        assert usual < found < usual + NEXT_PORTS
        assert f"port {usual} is in use; using {found}, or choose one with --api-port" in capsys.readouterr().err


def test_where_all_ports_beside_it_are_in_use_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devtools.up.port_is_free", lambda _: False)
    with pytest.raises(UsageError, match="ports 8080 to 8129 are in use; choose a free one with --api-port"):
        _port(None, 8080, "--api-port", Screen())
