"""./dev brokers: real brokers that go on until they are stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testbed import __main__, brokers, rocketmq
from testbed.brokers import Brokers
from testbed.errors import ServerError, ServerMissing
from testbed.kafka import available
from testbed.process import ServerProcess
from tests.house.processes import ROOT, is_running, needs_proc
from tests.support.waiting import eventually


class Sleeper:
    """A broker of two processes that serve nothing."""

    url = "kafka://127.0.0.1:1"
    broken = False

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.processes = [ServerProcess(name, ["sleep", "600"], log=folder / "log", stay=True) for _ in "ab"]

    def start(self) -> None:
        for process in self.processes:
            process.start()
        (self.folder / "data").write_text("")
        if self.broken:
            raise ServerError("it does not start")

    def make_topic(self, topic: str) -> None:
        pass

    def stop(self) -> None:
        for process in self.processes:
            process.kill()


class Started:
    """Brokers of the test, and what was started."""

    def __init__(self, folder: Path) -> None:
        self.made: list[Sleeper] = []
        self.brokers = Brokers(folder, make=self._make)

    def _make(self, name: str, folder: Path) -> Sleeper:
        self.made.append(Sleeper(name, folder))
        return self.made[-1]

    def run(self, *arguments: str) -> int:
        return __main__.main(arguments, brokers=self.brokers)

    def pids(self) -> list[int | None]:
        return [process.pid for broker in self.made for process in broker.processes]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setattr(__main__, "prepare", lambda name: None)
    monkeypatch.setattr(__main__, "known", lambda: ["kafka", "rocketmq"])
    running = Started(tmp_path)
    yield running
    for broker in running.made:
        broker.stop()


def test_up_starts_all_and_says_where_they_are(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    assert started.run("up") == 0
    said = capsys.readouterr().out
    assert "kafka runs: kafka://127.0.0.1:1\n" in said
    (line,) = [line for line in said.splitlines() if "DELAYQ_ROUTES" in line]
    assert json.loads(line.partition("=")[2].strip("'"))[1] == {
        "name": "rocketmq",
        "match": "rocketmq.*",
        "target": "kafka://127.0.0.1:1",
    }
    notes = json.loads((started.brokers.folder / "state.json").read_text())
    assert [one["pid"] for note in notes.values() for one in note["processes"]] == started.pids()


def test_up_again_says_that_they_run(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    started.run("up", "kafka")
    assert started.run("up", "kafka") == 0
    assert "kafka runs already: kafka://127.0.0.1:1\n" in capsys.readouterr().out
    assert len(started.made) == 1


def test_down_stops_those_that_are_named_and_removes_their_data(
    started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    started.run("up")
    assert started.run("down", "kafka") == 0
    assert [pid is None for pid in started.pids()] == [True, True, False, False]
    assert not (started.brokers.folder / "kafka").exists()
    assert list(started.brokers.notes()) == ["rocketmq"]
    assert started.run("down") == 0 and started.pids() == [None] * 4
    assert started.run("down") == 0
    assert capsys.readouterr().out.endswith("kafka is stopped\nrocketmq is stopped\nno broker was running\n")


def test_a_paused_broker_is_stopped_too(started: Started) -> None:
    started.run("up", "kafka")
    started.made[0].processes[0].pause()
    assert started.run("down") == 0 and started.pids() == [None, None]


def test_one_of_which_a_part_is_gone_starts_anew(started: Started) -> None:
    started.run("up", "kafka")
    started.made[0].processes[1].kill()
    assert not started.brokers.notes()["kafka"].runs
    assert started.run("up", "kafka") == 0
    assert [pid is None for pid in started.pids()] == [True, True, False, False]


def test_a_process_that_has_the_id_of_a_broker_by_now_is_left_alone(started: Started) -> None:
    started.run("up", "kafka")
    file = started.brokers.folder / "state.json"
    notes = json.loads(file.read_text())
    for process in notes["kafka"]["processes"]:
        process["began"] = "another moment"
    file.write_text(json.dumps(notes))
    assert started.run("down") == 0
    assert None not in started.pids()
    assert started.brokers.notes() == {}


def test_one_that_is_missing_is_named_and_hinders_no_other(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepare(name: str) -> None:
        if name == "kafka":
            raise ServerMissing("install it so and so")

    monkeypatch.setattr(__main__, "prepare", prepare)
    assert started.run("up") == 0
    said = capsys.readouterr()
    assert said.err == "kafka: install it so and so\n" and "rocketmq runs" in said.out
    assert started.run("up", "kafka", "rocketmq") == 1
    assert started.run("up", "kafka") == 1


def test_one_that_does_not_start_leaves_nothing(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sleeper, "broken", True)
    assert started.run("up", "kafka") == 1
    assert started.pids() == [None, None] and started.brokers.notes() == {}


@pytest.mark.parametrize("line", ["", "start", "up pulsar", "fetch pulsar"])
def test_wrong_use_is_refused(started: Started, line: str) -> None:
    with pytest.raises(SystemExit) as error:
        started.run(*line.split())
    assert error.value.code == 2
    assert started.made == []


def test_only_brokers_of_this_checkout_are_offered() -> None:
    assert "kafka" in brokers.known()
    assert set(brokers.known()) <= brokers.CLASSES.keys()


def test_a_real_kafka_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    try:
        available()
    except ServerMissing as error:
        pytest.skip(str(error))

    def run(action: str) -> str:
        command = [sys.executable, "-m", "testbed", action, "kafka", "--folder", str(tmp_path)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    said = run("up")
    try:
        (pid,) = [one.pid for one in Brokers(tmp_path).notes()["kafka"].processes]
        os.kill(pid, 0)
        # From a terminal it gets nothing: it is in a session of its own.
        assert os.getsid(pid) == pid
        servers = said.splitlines()[0].rpartition("//")[2]
        producer = Producer({"bootstrap.servers": servers, "log_level": 2})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        producer.close()
        assert "runs already" in run("up")
    finally:
        down = run("down")
    assert down == "kafka is stopped\n"
    eventually(lambda: not is_running(pid), "it has ended")
    assert not (tmp_path / "kafka").exists()


def listening(pids: Iterable[int]) -> dict[int, set[str]]:
    """Where processes listen, as the kernel tells: by their ids, the addresses in hexadecimal."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":  # LISTEN
                sockets[f"socket:[{words[9]}]"] = words[1].partition(":")[0]
    found = {}
    for pid in pids:
        opened = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists() or file.is_symlink()}
        found[pid] = {sockets[one] for one in opened & sockets.keys()}
    return found


@needs_proc
def test_a_real_rocketmq_listens_on_loopback_alone_and_lets_its_consumers_in(tmp_path: Path) -> None:
    try:
        rocketmq.available()
    except ServerMissing as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "testbed", "up", "rocketmq", "--folder", str(tmp_path)]
    try:
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert "In RocketMQ it is rocketmq-demo, and its consumer group is delayq." in said
        note = Brokers(tmp_path).notes()["rocketmq"]
        found = listening(one.pid for one in note.processes)
        assert len(found) == 2 and all(found.values())
        assert set().union(*found.values()) == {"0100007F"}
        endpoints = note.url.removeprefix("rocketmq://")
        eventually(lambda: consumes(endpoints, "rocketmq-demo", "delayq"), "the consumer group is let in")
    finally:
        __main__.main(["down", "--folder", str(tmp_path)])


def consumes(endpoints: str, topic: str, group: str) -> bool:
    """Whether a consumer of the group may ask for messages."""
    # Before anything else of the client, which would write its log elsewhere.
    from delayq.targets.rocketmq.client import ClientConfiguration, Credentials  # isort: skip
    from rocketmq import FilterExpression, SimpleConsumer
    from rocketmq.v5.exception import ClientException

    configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression("*")}, await_duration=1)
    try:
        consumer.startup()
        consumer.receive(1, 60)
    except ClientException:
        return False
    finally:
        consumer.shutdown()
    return True
