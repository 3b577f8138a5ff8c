"""./dev understands its command line, and installs what a command needs once."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from delayq.base.progress import Progress
from devtools import commandline, environment
from testbed.steps import Ran
from tests.house.processes import ROOT


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "no command given"),
        ("up --api-port 65536", "'65536' is not a port"),
        ("up --workers 2", "several workers need a ZooKeeper that assigns the queues; add --zookeeper"),
        ("up extra", "unrecognized arguments: extra"),
        ("up --ephemeral --data d", "--ephemeral keeps no data"),
        ("up --redis-url redis://h --data d", "--redis-url starts no server"),
        ("up --demo --redis-url redis://h", "--demo deletes its data at the end"),
        ("up --redis-url http://h", "a Redis URL must begin with redis://"),
        ("release", "release needs a version such as 0.2.0"),
    ],
)
def test_wrong_use_is_refused(line: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_ZOOKEEPER", raising=False)
    with pytest.raises(commandline.UsageError) as refused:
        commandline.plan(line.split(), str(ROOT))
    assert says in str(refused.value)


def test_help_names_every_command_and_wrong_use_is_one_sentence(tmp_path: Path) -> None:
    def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "DELAYQ_API_PORT": "http"}
        return subprocess.run(
            [str(ROOT / "dev"), *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    helped = dev("--help")
    assert helped.returncode == 0
    assert all(
        f"./dev {name} " in helped.stdout for name in ("up", "brokers", "test", "check", "bench", "openapi", "release")
    )
    refused = dev("up")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("dev: up: DELAYQ_API_PORT: 'http' is not a port")
    assert refused.stderr.count("\n") == 1


def test_the_commands_of_the_pages_and_of_ci_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    def commands_of(page: str) -> set[str]:
        lines = re.findall(r"^ *(?:timeout [^.]*)?(\./dev [^#>|\n]*?) *(?:[#>|].*)?$", (ROOT / page).read_text(), re.M)
        return set(lines)

    monkeypatch.setenv("DELAYQ_TEST_ALL", "")
    for page in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        assert "./dev test" in commands_of(page)
        for command in commands_of(page):
            commandline.plan(command.split()[1:], str(ROOT))
    assert {"./dev check", "./dev test --long"} <= commands_of(".ci/run")


def test_up_installs_only_what_its_options_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_REDIS_URL", raising=False)
    server = {"server"}
    assert commandline.plan(["up", "--redis-url", "redis://h"], "/")[0] == server
    assert commandline.plan(["up", "--demo"], "/")[0] == server | {"embedded", "webhook"}
    monkeypatch.setenv("DELAYQ_REDIS_URL", "redis://h")
    assert commandline.plan(["up"], "/")[0] == server
    assert commandline.plan(["up", "--data", "d"], "/here") == (
        server | {"embedded"},
        ["-m", "devtools.up", "--data", "d", "--data", "/here/d"],
    )


@pytest.mark.parametrize(
    ("table", "extras"),
    [
        ('[{"name": "a", "match": "a.*", "target": "http://127.0.0.1:8000/"}, {"name": "b"}]', {"webhook"}),
        (
            '[{"name":"a","target":"https://hooks.example/"},{"name":"b","target":"rabbitmqs://b"}]',
            {"webhook", "rabbitmq"},
        ),
        ('[{"name": "a", "target": "redis+stream://h"}, {"name": "b", "target": "log:"}]', set()),
        ("routes.yaml", {"kafka"}),
        ("routes.toml", {"rocketmq"}),
        ("missing.yaml", set()),
        ("", set()),
    ],
)
def test_up_installs_what_the_targets_of_its_routes_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table: str, extras: set[str]
) -> None:
    (tmp_path / "routes.yaml").write_text("- name: k\n  match: 'k.*'\n  target: kafka://broker:9092\n")
    (tmp_path / "routes.toml").write_text("[[routes]]\nname = 'r'\ntarget = 'rocketmq://proxy:8081'\n")
    monkeypatch.setenv("DELAYQ_ROUTES", table)
    monkeypatch.setenv("DELAYQ_REDIS_URL", "redis://h")
    assert commandline.plan(["up"], str(tmp_path))[0] == {"server"} | extras
    monkeypatch.setenv("DELAYQ_TRACES", "otlp")
    assert commandline.plan(["up"], str(tmp_path))[0] == {"server", "tracing"} | extras


class Checkout:
    """A root with a .venv that seems installed; it records what would be installed."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.installed: list[str] = []
        self.failing: set[str] = set()
        self.env: Mapping[str, str] = {}
        (root / "dev").touch()
        (root / "pyproject.toml").write_text("first")
        (root / "deploy").mkdir()
        (root / environment.CONSTRAINTS).write_text("first")
        (root / ".venv" / "bin").mkdir(parents=True)
        (root / ".venv" / "bin" / "python").touch()
        monkeypatch.setattr(subprocess, "call", lambda command, **options: 0)  # as if .venv worked
        monkeypatch.setattr(environment, "run", self._run)
        monkeypatch.setattr(shutil, "which", lambda name: None)  # no uv
        for name in environment.FOREIGN:  # prepare() drops them; this restores them
            monkeypatch.setenv(name, "/nowhere")

    def _run(self, command: list[str], progress: Progress | None, *, cwd: Path, env: Mapping[str, str]) -> Ran:
        assert cwd == self.root
        if command[-2:] == ["config", "list"]:
            assert progress is None  # the address of an index may have a password
            return Ran(0, "", late=False)
        self.env = env
        program = "uv" if command[1] == "pip" else "pip"
        if program == "uv":
            self.installed.append(command[-1])
        return Ran(int(program in self.failing), "", late=False)

    def prepare(self, *extras: str) -> list[str]:
        """What the call installs."""
        self.installed.clear()
        environment.prepare(str(self.root), set(extras))
        return list(self.installed)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch)


def test_an_installation_is_repeated_only_when_more_is_needed_or_a_file_changes_or_it_failed(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    checkout.failing = {"uv", "pip"}
    with pytest.raises(environment.CannotInstall, match="cannot install delayq"):
        checkout.prepare("server")
    checkout.failing = set()
    assert checkout.prepare("server") == [".[server]"]
    assert checkout.env["PIP_CONSTRAINT"] == environment.CONSTRAINTS  # what is tested is what the image gets
    assert os.environ.keys().isdisjoint(environment.FOREIGN)
    assert checkout.prepare("server") == []
    assert checkout.prepare("embedded") == [".[embedded,server]"]
    for name in ("pyproject.toml", environment.CONSTRAINTS):
        (checkout.root / name).write_text("second")
        assert checkout.prepare("server") == [".[embedded,server]"]
    assert checkout.prepare("dev") == [".[dev,embedded,server]"]
    assert checkout.prepare("test") == checkout.prepare("server") == []  # dev includes them


def test_half_an_environment_is_made_anew_by_a_python_that_can(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_works", lambda venv: False)
    (checkout.root / ".venv" / "left").touch()
    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(environment.CannotInstall, match="apt install python3-venv"):
            checkout.prepare("test")
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv" / "left").touch()
    monkeypatch.setattr(environment, "_make", lambda venv, uv: venv.mkdir())
    assert checkout.prepare("test") == [".[test]"]
    assert not (checkout.root / ".venv" / "left").exists()
