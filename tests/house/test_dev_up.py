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
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.embedded.processes import free_port
from testbed.errors import ServerMissing
from testbed.zookeeper import available
from tests.house.processes import ROOT, children_of, command_of, is_running, needs_proc
from tests.support.terminal import AtTerminal
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, needs_proc]

# As a shell starts background jobs: with SIGINT ignored, which children inherit.
IGNORING_SIGINT = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]


class Up:
    """One ./dev up on ports and a folder of its own; `start` it again after it ended."""

    def __init__(self, folder: Path) -> None:
        self.api_port, self.redis_port = free_port(), free_port()
        self.data = folder / "data"
        self.output = folder / "output"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *options: str) -> list[str]:
        ports = ["--api-port", str(self.api_port), "--redis-port", str(self.redis_port)]
        return [str(ROOT / "dev"), "up", *ports, *(options or ("--data", str(self.data)))]

    def start(self, *options: str) -> None:
        command = [*IGNORING_SIGINT, *self.command(*options)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=env, stdout=output, stderr=output, cwd="/", start_new_session=True
            )
        eventually(lambda: self._is_ready(), f"./dev up is ready\n{self.text()}")

    def _is_ready(self) -> bool:
        assert self.running.poll() is None, self.text()
        return "delayq is ready" in self.text()

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def parts(self) -> dict[str, int]:
        """The pids of its children, by what they are."""
        found = {}
        for pid in children_of(self.running.pid):
            for part, pattern in {
                "valkey": "valkey-server",
                "workers": "-m workers",
                "api": "-m api",
            }.items():
                if pattern in command_of(pid):
                    found[part] = pid
        return found

    def schedule(self, body: str, delay: str) -> str:
        message = {"topic": "house", "body": body, "delayTime": delay}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.api_port}/v1/messages",
            json.dumps(message).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            assert answer.status == 201
            identity: str = json.load(answer)["id"]
            return identity

    def ask(self, path: str) -> Any:
        """What the API answers."""
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{self.api_port}{path}", timeout=10
        ) as answer:
            return json.load(answer)

    def arrived(self) -> list[str]:
        """The ids of what the topic's stream has, also while the server is coming back."""
        with redis.Redis(port=self.redis_port, decode_responses=True) as client:
            try:
                entries: Any = client.xrange("house")
            except (redis.ConnectionError, redis.BusyLoadingError):
                return []
        return [fields["id"] for _, fields in entries]

    def queues_by_node(self) -> dict[str, list[int]]:
        """The queues of the live nodes, as the API tells."""
        nodes = self.ask("/v1/nodes")["nodes"]
        return {node["node"]: [one["queue"] for one in node["queues"]] for node in nodes if not node["stale"]}

    def keep(self) -> None:
        """Wait until all that was written up to now survives a kill: in the middle of an fsync the server does not even write
        until the disk is done, and answers nevertheless (row A2 of docs/faults.md)."""
        with redis.Redis(port=self.redis_port) as client:
            client.set("the last thing", "written")  # it waits for what its own connection has written
            assert client.execute_command("WAITAOF", 1, 0, 30_000)[0] == 1

    def wait_for(self, identity: str) -> None:
        eventually(lambda: identity in self.arrived(), f"{identity} arrives\n{self.text()}")

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    yield running
    running.end()


def test_a_message_arrives_on_time_and_ctrl_c_stops_everything(up: Up) -> None:
    up.start()
    assert f"http://127.0.0.1:{up.api_port}/docs" in up.text()
    assert f"http://127.0.0.1:{up.api_port}/console/" in up.text()
    assert str(up.data) in up.text()
    began = time.time()
    identity = up.schedule("hello", "1s")
    up.wait_for(identity)
    assert time.time() - began >= 1
    children = children_of(up.running.pid)
    assert set(up.parts()) == {"valkey", "workers", "api"}

    os.killpg(up.running.pid, signal.SIGINT)

    assert up.running.wait(40) == 0, up.text()
    assert [pid for pid in children if is_running(pid)] == []


def test_the_lines_to_paste_are_those_of_the_readme_and_show_a_message(up: Up) -> None:
    up.start("--ephemeral")
    schedule, tail = re.findall(r"^  (.*\S*delayq (?:schedule|tail) .*)$", up.text(), re.MULTILINE)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = shlex.quote(str(Path(sys.executable).parent / "delayq"))
    assert all(f"\n.venv/bin/delayq{line.rpartition(ours)[2]}\n" in readme for line in (schedule, tail))
    env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
    pasted = ["bash", "-c", f"{schedule}\nexec {tail}"]
    with subprocess.Popen(pasted, stdout=subprocess.PIPE, text=True, env=env) as watching:
        assert watching.stdout is not None
        try:
            identity = watching.stdout.readline().split("\t")[0]
            _, _, arrived, _, body = watching.stdout.readline().rstrip("\n").split("\t")
        finally:
            watching.terminate()  # tail has no end, and the block waits for one
    assert (arrived, body) == (identity, "world")


def test_at_a_terminal_it_speaks_in_words_and_ctrl_c_is_one_line(up: Up) -> None:
    with AtTerminal(up.command("--ephemeral"), cwd=Path("/")) as terminal:
        eventually(lambda: "Ctrl-C stops everything" in terminal.text, "it is ready")
        children = children_of(terminal.process.pid)
        eventually(lambda: "owns queues 0-15" in terminal.plain, "the worker owns its queues")
        worker = next(pid for pid in children if "-m workers" in command_of(pid))
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: terminal.plain.count("owns queues 0-15") == 2, f"a new worker owns them\n{terminal.plain}")
        terminal.press_ctrl_c()
        assert terminal.wait(40) == 0
        plain = terminal.plain
    assert "{" not in plain
    assert re.search(r"^\d\d:\d\d:\d\d  API        listens on 127\.0\.0\.1:\d+$", plain, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d  dev        worker died and is started again; signal 9$", plain, re.MULTILINE)
    (last,) = re.findall(r"^\d\d:.*$", plain.split("owns queues 0-15\n")[2], re.MULTILINE)
    assert re.fullmatch(r"\d\d:\d\d:\d\d  dev        everything is stopped, in order", last)
    assert [pid for pid in children if is_running(pid)] == []


def test_when_the_terminal_is_closed_everything_ends_in_order(up: Up) -> None:
    with AtTerminal(up.command(), cwd=Path("/")) as terminal:
        eventually(lambda: "Ctrl-C stops everything" in terminal.text, "it is ready")
        identity = up.schedule("kept", "1s")
        children = children_of(terminal.process.pid)
        terminal.hang_up()
        assert terminal.process.wait(40) == 0
    assert [pid for pid in children if is_running(pid)] == []
    up.start()
    up.wait_for(identity)
    assert up.arrived() == [identity]


def test_json_is_there_for_who_asks_for_it_at_a_terminal(up: Up) -> None:
    with AtTerminal(up.command("--ephemeral", "--json"), cwd=Path("/")) as terminal:
        eventually(lambda: '"owner"' in terminal.text, "the worker owns its queues")
        (line,) = [line for line in terminal.text.splitlines() if '"owner"' in line]
    assert json.loads(line)["queues"] == "0-15"


def test_its_queues_are_one_line(up: Up) -> None:
    up.start("--ephemeral")
    eventually(lambda: '"owner"' in up.text(), f"the worker owns its queues\n{up.text()}")
    (line,) = [line for line in up.text().splitlines() if '"owner"' in line]
    assert json.loads(line)["queues"] == "0-15"


@pytest.mark.parametrize("part", ["valkey", "workers", "api"])
def test_a_part_that_is_killed_comes_back_and_nothing_is_lost(up: Up, part: str) -> None:
    up.start()
    early, late = up.schedule("early", "1s"), up.schedule("late", "4s")
    before = up.parts()

    up.keep()
    os.kill(before[part], signal.SIGKILL)

    eventually(lambda: up.parts().get(part, before[part]) != before[part], f"{part} is started again")
    up.wait_for(early)
    up.wait_for(late)
    assert {name: pid for name, pid in up.parts().items() if name != part} == {
        name: pid for name, pid in before.items() if name != part
    }


def test_after_a_kill_of_everything_the_next_start_goes_on(up: Up) -> None:
    up.start()
    identity = up.schedule("kept", "3s")
    up.keep()
    for pid in (up.running.pid, *children_of(up.running.pid)):
        os.kill(pid, signal.SIGKILL)
    assert up.running.wait(10) == -signal.SIGKILL

    up.start()

    up.wait_for(identity)
    assert up.arrived() == [identity]


def test_after_a_kill_of_dev_alone_its_children_end_and_the_next_start_goes_on(up: Up) -> None:
    up.start()
    identity = up.schedule("kept", "3s")
    children = children_of(up.running.pid)
    up.running.kill()
    up.running.wait(10)

    up.start()

    up.wait_for(identity)
    eventually(lambda: not any(is_running(pid) for pid in children), "the first children ended")


def test_three_workers_share_the_queues_and_one_that_is_killed_comes_back(up: Up) -> None:
    try:
        available()
    except ServerMissing as error:
        pytest.skip(str(error))
    up.start("--data", str(up.data), "--workers", "3", "--zookeeper")
    eventually(
        lambda: sorted(map(len, up.queues_by_node().values())) == [5, 5, 6], f"all queues have owners\n{up.text()}"
    )
    identity = up.schedule("before", "1s")
    up.wait_for(identity)
    victim = next(pid for pid in children_of(up.running.pid) if "-m workers" in command_of(pid))

    os.kill(victim, signal.SIGKILL)

    for number in range(32):  # as many as would meet every queue
        up.wait_for(up.schedule(f"after {number}", "0s"))
    eventually(lambda: sorted(map(len, up.queues_by_node().values())) == [5, 5, 6], f"all share again\n{up.text()}")
    children = children_of(up.running.pid)
    up.running.send_signal(signal.SIGTERM)
    assert up.running.wait(60) == 0, up.text()
    assert [pid for pid in children if is_running(pid)] == []


def test_several_workers_without_zookeeper_are_refused_in_one_sentence() -> None:
    ran = subprocess.run(
        [str(ROOT / "dev"), "up", "--workers", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")},
    )
    assert ran.returncode == 2
    assert "several workers need a ZooKeeper that spreads the queues: add --zookeeper" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_ephemeral_data_are_gone_at_the_end(up: Up) -> None:
    up.start("--ephemeral")
    folder = Path(f"/proc/{up.parts()['valkey']}/cwd").readlink()
    assert folder.is_dir()
    up.running.send_signal(signal.SIGTERM)
    assert up.running.wait(40) == 0, up.text()
    assert not folder.exists()


@pytest.mark.timeout(300)
def test_the_demo_has_all_that_there_is_to_see(up: Up) -> None:
    up.start("--demo")
    soon = f"/v1/forecast?step=1m&to={int((time.time() + 20 * 60) * 1000)}"
    by_hand = {"pause", "resume", "put_policy", "redrive", "deliver_now"}

    def bank() -> Any:
        return next(one for one in up.ask("/v1/routes")["routes"] if one["name"] == "bank")

    def newsletter() -> Any:
        return up.ask("/v1/topics/newsletter.weekly")

    def orders() -> Any:
        return up.ask("/v1/messages?topic=orders.*&tags=web")["messages"]

    looks: dict[str, Callable[[], object]] = {
        "of a paused topic messages are held": lambda: newsletter().get("pause") and newsletter()["held"],
        "a target takes nothing": lambda: bank()["parked"] and "closed for maintenance" in json.dumps(bank()),
        "a burst is ahead": lambda: max(one["messages"] for one in up.ask(soon)["buckets"]) >= 20_000,
        "dead letters are of several groups": lambda: len(up.ask("/v1/dead-letters:groups")["groups"]) >= 2,
        "a message is tried again": lambda: up.ask("/v1/messages?topic=labels.*&state=retrying")["messages"],
        "messages have keys and tags": lambda: any(one["message"]["keys"] for one in orders()),
        "orders are paid": lambda: up.ask("/v1/stats")["counters"]["cancelled"],
        "a topic is held to its limit": lambda: up.ask("/v1/topics/sms.code")["held"],
        "operators do something": lambda: by_hand <= {one["action"] for one in up.ask("/v1/audit")["entries"]},
        "the census knows the topics": lambda: sum("counts" in one for one in up.ask("/v1/topics")["topics"]) >= 8,
        "the target takes what was parked": lambda: bank()["parked"] == 0,
    }
    for what, look in looks.items():
        eventually(look, f"{what}\n{up.text()}")


@pytest.mark.parametrize("option", ["--api-port", "--redis-port"])
def test_a_port_that_is_asked_for_and_in_use_is_told_in_one_sentence(tmp_path: Path, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [str(ROOT / "dev"), "up", option, port, "--data", str(tmp_path / "data")]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr == f"dev: port {port} is in use; give another one by {option}\n"
