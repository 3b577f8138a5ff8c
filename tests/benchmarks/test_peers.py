"""delayq beside other delay queues: what is told of them, those that are not there, and delayq's own program."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, now
from benchmarks.measures import peers as measure
from benchmarks.measures.peers import Found, better, figures_of, whole_second
from benchmarks.peers import OURS, PEERS, Peer
from benchmarks.results import LEFT_OUT, NOTES
from benchmarks.running.processes import program
from testbed import node
from testbed.errors import ServerMissing

BEST: Found = {"one by one": 4.0, "drain": 9.0, "lateness p50": 1.0, "lateness p99": 2.0, "CPU": 100, "early": 0}
ROUND: dict[str, Found] = {
    "delayq": BEST,
    "asynq": {**BEST, "one by one": 5.0, "lateness p50": -300.0, "early": 0.7},
    "beanstalkd": {"drain": 3.0, "lateness p50": 0.5, "lateness p99": 4.0, "CPU": 50, "early": 0},
}


def test_delayq_stands_beside_each_peer_in_what_both_can() -> None:
    figures = {figure.name: figure for figure in figures_of([ROUND])}
    assert figures["one by one, beside asynq"].goal_text == "≥ 0.7"
    assert figures["one by one, beside asynq"].ratio == 0.8
    assert figures["lateness p99, beside beanstalkd"].reached
    assert figures["lateness p50, beside beanstalkd"].reached is False
    assert "one by one, beside beanstalkd" not in figures
    assert "lateness p50, beside asynq" not in figures  # it was early: no ratio


def test_where_a_peer_is_better_is_said() -> None:
    said = list(better(list(figures_of([ROUND]))))
    assert said == [
        "asynq is better in one by one.",
        "beanstalkd is better in lateness p50.",
        "beanstalkd is better in CPU.",
    ]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements that take no time."""
    for name, found in (("_one_by_one", {"one by one": 1.0}), ("_at_once", {"64 at once": 1.0}), ("_drain", {})):
        monkeypatch.setattr(measure, name, lambda size, peer, found=found: found)
    monkeypatch.setattr(measure, "_steady", lambda size, peer: {"early": 0.25 if peer.name == "asynq" else 0.0})


def absent() -> Peer:
    raise ServerMissing("it needs a toolchain")


def other() -> Peer:
    return Peer("asynq", "1.2", ("true",), OURS.serving)


@pytest.mark.usefixtures("measured")
def test_a_peer_that_is_not_there_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "PEERS", {"asynq": other, "BullMQ": absent})
    figures, details = measure.run(Scale(False))
    assert [figure.name for figure in figures] == ["one by one, beside asynq", "64 at once, beside asynq"]
    assert details[LEFT_OUT] == {"BullMQ": "it needs a toolchain"}
    assert details[NOTES][:2] == ["Peers: asynq 1.2.", "asynq handed 25% of the messages at 1,000/s over early."]
    monkeypatch.setattr(measure, "PEERS", {"BullMQ": absent})
    with pytest.raises(ServerMissing, match="needs a toolchain"):
        measure.run(Scale(False))


@pytest.mark.parametrize(
    ("name", "sentence"), [("asynq", "Go 1.24"), ("BullMQ", "Node.js 20"), ("beanstalkd", "apt-get install beanstalkd")]
)
def test_what_a_peer_needs_is_one_sentence(name: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ServerMissing, match=sentence):
        PEERS[name]()


def test_a_client_that_cannot_be_built_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: downloading x' >&2\necho 'go: module lookup disabled' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(go))
    with pytest.raises(ServerMissing, match="could not be built: go: module lookup disabled"):
        PEERS["asynq"]()


def test_versions_are_those_that_are_pinned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "_go", lambda: "peers")
    monkeypatch.setattr(node, "fetch", lambda name: tmp_path / name)
    assert f"hibiken/asynq v{PEERS['asynq']().version}\n" in (peers.FOLDER / "go" / "go.mod").read_text()
    assert f'"bullmq": "{PEERS["BullMQ"]().version}"' in (peers.FOLDER / "bullmq" / "package.json").read_text()


def test_a_program_that_says_something_else_has_failed() -> None:
    with program(("echo", "no figures")) as process:
        process.wait(10)
        with pytest.raises(BenchmarkError, match="no figures"):
            peers.said(process)


@pytest.mark.parametrize("find", [lambda: OURS, *PEERS.values()], ids=["delayq", *PEERS])
def test_a_program_schedules_and_takes(find: Callable[[], Peer]) -> None:
    try:
        peer = find()
    except ServerMissing as error:
        pytest.skip(str(error))
    with peer.serving() as serving:
        actions = ["schedule", "bulk"] if peer.bulk else ["schedule"]
        for action in actions:
            assert peer.do(action, serving, 200, 10)["rate"] > 0
        moment = whole_second(now() + 2_000)
        peer.do("backlog", serving, 300, moment)
        assert peer.do("consume", serving, 300, moment + peer.slack)["seconds"] > 0
