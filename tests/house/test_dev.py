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

from devtools import commandline, environment
from tests.house.processes import ROOT


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "say what to do"),
        ("downgrade", "there is no 'downgrade'"),
        ("up --api-port 65536", "'65536' is not a port"),
        ("up --workers 2", "several workers need a ZooKeeper that spreads the queues: add --zookeeper"),
        ("up extra", "unrecognized arguments: extra"),
        ("up --ephemeral --data d", "--ephemeral keeps no data"),
        ("up --redis-url redis://h --data d", "--redis-url starts no server"),
        ("up --demo --redis-url redis://h", "--demo lives in a Valkey that is thrown away"),
        ("up --redis-url http://h", "a Redis URL begins with redis://"),
        ("test --long --all", "--all includes --long"),
        ("check everything", "check takes --fix"),
        ("bench", "bench needs a name"),
        ("brokers start kafka", "brokers needs up, down or fetch"),
        ("openapi now", "openapi takes nothing more"),
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
    assert all(f"./dev {name} " in helped.stdout for name in ("up", "brokers", "test", "check", "bench", "openapi"))
    refused = dev("up")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("dev: up: DELAYQ_API_PORT: 'http' is not a port")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "extra", "chosen"),
    [
        ("test", "test", "-m|not long and not release"),
        ("test -k word", "test", "-m|not long and not release|-k|word"),
        ("test --long -x", "dev", "-m|long|-x"),
        ("test --all", "dev", ""),
        ("test test_it.py::test_one", "test", "{here}/test_it.py::test_one"),
        ("test --long test_it.py", "dev", "-m|long|{here}/test_it.py"),
    ],
)
def test_a_layer_or_a_path_chooses_the_tests(
    line: str, extra: str, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_TEST_ALL", "")  # --all sets it; this restores it
    (tmp_path / "test_it.py").touch()
    extras, command = commandline.plan(line.split(), str(tmp_path))
    assert extras == {extra}
    assert command[7:] == [word for word in chosen.format(here=tmp_path).split("|") if word]
    assert os.environ["DELAYQ_TEST_ALL"] == ("1" if "--all" in line else "")


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


class Checkout:
    """A root with a .venv that seems installed; it records what would be installed."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.installed: list[str] = []
        self.result = 0
        self.env: Mapping[str, str] = {}
        (root / "dev").touch()
        (root / "pyproject.toml").write_text("first")
        (root / "deploy").mkdir()
        (root / environment.CONSTRAINTS).write_text("first")
        (root / ".venv" / "bin").mkdir(parents=True)
        (root / ".venv" / "bin" / "python").touch()
        monkeypatch.setattr(subprocess, "call", lambda command, **options: 0)  # as if .venv worked
        monkeypatch.setattr(environment, "call", self._install)
        monkeypatch.setattr(shutil, "which", lambda name: None)  # no uv
        for name in environment.FOREIGN:  # prepare() drops them; this restores them
            monkeypatch.setenv(name, "/nowhere")

    def _install(self, command: list[str], *, cwd: Path, env: Mapping[str, str]) -> int:
        assert cwd == self.root
        self.env = env
        self.installed.append(command[-1])
        return self.result

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
    checkout.result = 1
    with pytest.raises(environment.CannotInstall, match="could not be installed"):
        checkout.prepare("server")
    checkout.result = 0
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
