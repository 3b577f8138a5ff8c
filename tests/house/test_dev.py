from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from devtools import commandline, environment
from tests.house.processes import ROOT


def dev(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "dev"), *arguments]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "say what to do"),
        ("downgrade", "there is no 'downgrade'"),
        ("--version", "there is no '--version'"),
        ("up --api-port x", "'x' is not a port"),
        ("up --api-port 65536", "'65536' is not a port"),
        ("up --redis-port", "expected one argument"),
        ("up --api 8080", "unrecognized arguments"),
        ("up extra", "unrecognized arguments: extra"),
        ("up --ephemeral --data d", "--ephemeral keeps no data"),
        ("up --redis-url redis://h --data d", "--redis-url starts no server"),
        ("up --demo --data d", "--demo lives in a Valkey that is thrown away"),
        ("up --demo --redis-url redis://h", "--demo lives in a Valkey that is thrown away"),
        ("up --redis-url http://h", "a Redis URL begins with redis://"),
        ("up --data=", "--data needs the name of a folder"),
        ("check everything", "check takes --fix"),
        ("bench", "bench needs a name"),
        ("brokers", "brokers needs up, down or fetch"),
        ("brokers start kafka", "brokers needs up, down or fetch"),
        ("openapi now", "openapi takes nothing more"),
    ],
)
def test_wrong_use_is_refused(line: str, says: str) -> None:
    with pytest.raises(commandline.UsageError) as told:
        commandline.plan(line.split(), str(ROOT))
    assert says in str(told.value)


def test_wrong_use_is_told_in_one_sentence() -> None:
    ran = dev("downgrade")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("dev: there is no 'downgrade'") and ran.stderr.count("\n") == 1


def test_a_wrong_port_in_the_environment_is_told_in_one_sentence() -> None:
    ran = dev("up", DELAYQ_API_PORT="http")
    assert ran.returncode == 2
    assert ran.stderr.startswith("dev: up: DELAYQ_API_PORT: 'http' is not a port")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--help", "-h", "help"])
def test_help_names_every_command(option: str, tmp_path: Path) -> None:
    ran = dev(option, cwd=tmp_path)
    assert ran.returncode == 0
    assert all(f"./dev {name} " in ran.stdout for name in ("up", "brokers", "test", "check", "bench", "openapi"))


def test_up_explains_its_options() -> None:
    ran = dev("up", "--help")
    assert ran.returncode == 0
    options = ("--api-port", "--redis-port", "--data", "--ephemeral", "--redis-url", "--demo")
    assert all(option in ran.stdout for option in options)


def test_brokers_offers_what_servers_has() -> None:
    ran = dev("brokers", "--help")
    assert ran.returncode == 0
    actions = re.findall(r"^(\w+) \[NAME", ran.stdout, re.MULTILINE)
    assert actions == ["up", "down", "fetch"]
    for action in actions:
        assert commandline.plan(["brokers", action], "/")[1] == ["-m", "testbed", action]


def test_paths_are_meant_from_where_the_caller_stands(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").touch()
    _, command = commandline.plan(["test", "--fast", "-k", "word", "test_it.py::test_one"], str(tmp_path))
    assert command == [
        "-m",
        "pytest",
        "-ra",
        *commandline.PARALLEL,
        "-m",
        "not slow and not long",
        "-k",
        "word",
        f"{tmp_path}/test_it.py::test_one",
    ]
    _, command = commandline.plan(["up", "--data", "here"], str(tmp_path))
    assert command[-2:] == ["--data", f"{tmp_path}/here"]


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("test", ["-m", "not long"]),
        ("test -k word", ["-m", "not long", "-k", "word"]),
        ("test --fast", ["-m", "not slow and not long"]),
        ("test --long -x", ["-m", "long", "-x"]),
        ("test test_it.py", ["{here}/test_it.py"]),
        ("test --long test_it.py", ["-m", "long", "{here}/test_it.py"]),
    ],
)
def test_long_tests_run_where_an_option_or_a_path_asks_for_them(line: str, chosen: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").touch()
    _, command = commandline.plan(line.split(), str(tmp_path))
    assert command[3 + len(commandline.PARALLEL) :] == [word.format(here=tmp_path) for word in chosen]


def commands_of(page: str) -> list[str]:
    """What a page or a script runs of ./dev, each on a line of its own, without the remark behind it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^ *(?:timeout [^.]*)?(\./dev [^#\n]*?) *(?:#.*)?$", text, re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_commands_of_the_pages_are_understood(page: str) -> None:
    assert commands_of(page)
    for command in commands_of(page):
        commandline.plan(command.split()[1:], str(ROOT))


def test_ci_runs_the_tests_as_the_pages_say_and_none_twice() -> None:
    tests = [command for command in commands_of(".ci/run") if command.startswith("./dev test")]
    assert tests == ["./dev test", "./dev test --long"]
    assert "./dev test" in commands_of("README.md") and set(tests) <= set(commands_of("CONTRIBUTING.md"))


def test_what_is_left_out_is_said() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m"]
    here = str(ROOT / "tests" / "soak")
    ran = subprocess.run([*command, "not long", here], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "The long tests are left out; they run by: ./dev test --long" in ran.stdout
    assert "deselected" in ran.stdout


def test_up_with_a_server_of_ones_own_needs_no_embedded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_REDIS_URL", raising=False)
    assert commandline.plan(["up", "--redis-url", "redis://h"], "/")[0] == {"services"}
    assert commandline.plan(["up"], "/")[0] == {"embedded", "services"}
    monkeypatch.setenv("DELAYQ_REDIS_URL", "redis://h")
    assert commandline.plan(["up"], "/")[0] == {"services"}
    assert commandline.plan(["up", "--ephemeral"], "/")[0] == {"embedded", "services"}
    assert commandline.plan(["up", "--demo"], "/")[0] == {"embedded", "services", "webhook"}


def test_the_demo_has_routes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_ROUTES", "routes.json")
    with pytest.raises(commandline.UsageError, match="has routes of its own"):
        commandline.plan(["up", "--demo"], "/")


class Checkout:
    """A root with a .venv that seems installed; what would be run is noted instead."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.ran: list[list[str]] = []
        self.result = 0
        self.env: Mapping[str, str] = {}
        (root / "dev").touch()
        (root / "pyproject.toml").write_text("first")
        (root / "deploy").mkdir()
        (root / environment.CONSTRAINTS).write_text("first")
        (root / ".venv" / "bin").mkdir(parents=True)
        (root / ".venv" / "bin" / "python").touch()
        monkeypatch.setattr(subprocess, "call", self._call)
        monkeypatch.setattr(shutil, "which", lambda name: None)  # no uv
        for name in environment.FOREIGN:  # prepare() drops them; this puts them back in the end
            monkeypatch.delenv(name, raising=False)

    def _call(self, command: list[str], *, env: Mapping[str, str] | None = None, **options: object) -> int:
        self.ran.append(command)
        self.env = env or {}
        return self.result if "install" in command else 0

    def prepare(self, *extras: str) -> str:
        return environment.prepare(str(self.root), set(extras))

    def installs(self) -> list[str]:
        return [command[-1] for command in self.ran if "install" in command]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch)


def test_a_second_start_installs_nothing(checkout: Checkout) -> None:
    python = checkout.prepare("dev")
    assert python == str(checkout.root / ".venv" / "bin" / "python")
    assert checkout.installs() == [".[dev]"]
    checkout.ran.clear()
    checkout.prepare("dev")
    checkout.prepare("embedded", "services")  # dev includes them
    assert checkout.ran == []


@pytest.mark.parametrize("changed", ["pyproject.toml", environment.CONSTRAINTS])
def test_more_is_installed_when_more_is_needed_or_the_project_changed(checkout: Checkout, changed: str) -> None:
    checkout.prepare("services")
    checkout.prepare("embedded")
    (checkout.root / changed).write_text("second")
    checkout.prepare("services")
    assert checkout.installs() == [".[services]", ".[embedded,services]", ".[embedded,services]"]


@pytest.mark.parametrize("name", ["PIP_CONSTRAINT", "UV_CONSTRAINT"])
def test_the_versions_of_the_image_are_installed_unless_the_caller_says_otherwise(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Without them pip searches for minutes, and what is tested is not what the image gets."""
    monkeypatch.delenv(name, raising=False)
    checkout.prepare("services")
    assert checkout.env[name] == environment.CONSTRAINTS
    monkeypatch.setenv(name, "")
    checkout.prepare("embedded")
    assert checkout.env[name] == ""


def test_what_uv_installs_is_compiled_as_by_pip(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every start compiles it, where Python may write nothing, or each user for itself."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    checkout.prepare("services")
    (install,) = [command for command in checkout.ran if "install" in command]
    assert install[:3] == ["/usr/bin/uv", "pip", "install"] and "--compile-bytecode" in install


def test_a_failed_installation_is_tried_again(checkout: Checkout) -> None:
    checkout.result = 1
    with pytest.raises(environment.CannotInstall, match="could not be installed"):
        checkout.prepare("dev")
    checkout.result = 0
    checkout.prepare("dev")
    assert checkout.installs() == [".[dev]", ".[dev]"]


def test_half_an_environment_is_made_anew(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_works", lambda venv: False)
    left = checkout.root / ".venv" / "left"
    left.touch()
    monkeypatch.setattr(environment, "_make", lambda venv, uv: venv.mkdir())
    checkout.prepare("dev")
    assert not left.exists()
    assert checkout.installs() == [".[dev]"]


def test_a_python_without_ensurepip_gets_a_sentence(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_works", lambda venv: False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(environment.CannotInstall, match="apt install python3-venv"):
        checkout.prepare("dev")


def test_what_belongs_to_other_environments_is_left_behind(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.FOREIGN:
        monkeypatch.setenv(name, "/nowhere")
    checkout.prepare("dev")
    assert os.environ.keys().isdisjoint(environment.FOREIGN)
