"""The wheel: what it has, what an environment of its own gets with it, and the services that run from it."""

from __future__ import annotations

import configparser
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from delayq import Client, Message
from delayq.config import SETTINGS, variable
from delayq.embedded.processes import LOCALHOST, free_port
from devtools.pages import blocks_of
from devtools.release import version_of
from testbed.zookeeper import ZooKeeperServer
from tests.house.processes import ROOT
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.timeouts import HTTP_TIMEOUT, REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

SERVICES = ("api", "coordinator", "workers")
#: The page that the API serves beside the console.
RUNBOOK = "docs/runbook.md"
VERSION = version_of(ROOT)
PAGE = ROOT / "docs" / "systemd.md"
TESTING = ROOT / "docs" / "tasks" / "test-my-code.md"
UNITS = {block.note.removeprefix("file "): block.text for block in blocks_of(PAGE) if block.note.endswith(".service")}
#: What the client may be.
MOST_PACKAGES, MOST_BYTES = 8, 15 * 2**20


def run(*words: object, cwd: Path) -> str:
    ran = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built, because a build leaves files beside it: a repository with a tag, as that of a release."""
    folder = tmp_path_factory.mktemp("source") / "delayq"
    for name in ("delayq", *SERVICES):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md", "pyspark_delayq.py"):
        shutil.copy(ROOT / name, folder)
    (folder / "docs").mkdir()
    shutil.copy(ROOT / RUNBOOK, folder / RUNBOOK)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost")
    run("git", "init", "--quiet", cwd=folder)
    run("git", "add", "--all", cwd=folder)
    run(*git, "commit", "--quiet", "--no-verify", "--message", "x", cwd=folder)
    run(*git, "tag", f"v{VERSION}", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, f"git+file://{source}@v{VERSION}", cwd=folder)
    (made,) = folder.iterdir()
    assert made.name in PAGE.read_text()
    return made


def environment(folder: Path, wheel: Path, extras: str, *options: str) -> Path:
    """A virtual environment with this wheel, as the page of systemd makes one: its folder of programs."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    if subprocess.run([*pip, "index", "versions", "msgspec"], capture_output=True, check=False).returncode:
        pytest.skip("no package registry answers: pip cannot fill an environment of its own")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    pinned = ("--quiet", "--constraint", ROOT / "deploy" / "constraints.txt", *options)
    run(*pip, "--python", folder / "bin" / "python", "install", *pinned, f"{wheel}{extras}", cwd=folder.parent)
    return folder / "bin"


@pytest.fixture(scope="module")
def of_client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("client") / "venv", wheel, "")


@pytest.fixture(scope="module")
def of_server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("server") / "venv", wheel, "[server]", "--no-compile")


def test_a_project_of_ones_own_installs_the_library_as_the_readme_says_and_nothing_else(
    source: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    (command,) = re.findall(r"`(pip install \./[^`]*)`", (ROOT / "README.md").read_text())
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--target", str(site)]
    run(sys.executable, "-m", *shlex.split(command), *offline, cwd=source.parent)

    facts = f"delayq-{VERSION}.dist-info"
    assert {path.name for path in site.iterdir()} == {"bin", "delayq", "pyspark_delayq.py", facts}
    files = [path for path in (ROOT / "delayq").rglob("*") if path.suffix in {".py", ".lua", ".typed"}]
    names = {str(path.relative_to(ROOT)) for path in files}
    assert any(name.startswith("delayq/store/lua/") for name in names) and "delayq/py.typed" in names
    files = [path for name in SERVICES for path in (ROOT / name).rglob("*.py")]
    files += [path for path in (ROOT / "api" / "console").rglob("*") if path.is_file()]
    names |= {f"delayq/_services/{path.relative_to(ROOT)}" for path in [*files, ROOT / RUNBOOK]}
    assert [name for name in names if not (site / name).is_file()] == []
    declared = configparser.ConfigParser(delimiters=["="])
    declared.read_string((site / facts / "entry_points.txt").read_text())
    assert dict(declared["console_scripts"]) == {"delayq": "delayq.cli:main"}
    schemes = {"redis+stream", "log", "http", "https", "kafka", "rabbitmq", "rabbitmqs", "rocketmq"}
    assert set(declared["delayq.targets"]) == schemes


LOOK = """\
import importlib.util, json, pkgutil
names = ("delayq", "pyspark_delayq")
seen = {module.name for module in pkgutil.iter_modules()}
print(json.dumps([
    [name for name in names if importlib.util.find_spec(name)],
    [name for name in names if name in seen],
    importlib.util.find_spec("delayq").origin,
]))
"""


@pytest.mark.parametrize("above", [False, True])
def test_this_environment_finds_what_the_wheel_has_wherever_it_is_used(tmp_path: Path, above: bool) -> None:
    """Also from a folder that has one called delayq in it, as the one above a checkout has."""
    try:
        importlib.metadata.distribution("delayq")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("delayq is not installed in this Python: run ./dev test")
    if above:
        (tmp_path / "delayq").symlink_to(ROOT)
    ran = subprocess.run([sys.executable, "-c", LOOK], cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    imported, listed, where = json.loads(ran.stdout)
    assert imported == listed == ["delayq", "pyspark_delayq"]
    assert Path(where).samefile(ROOT / "delayq" / "__init__.py")


def test_the_client_alone_is_small_and_names_the_extra_of_whatever_it_lacks(
    of_client: Path, valkey: ServerUnderTest, tmp_path: Path
) -> None:
    (site,) = of_client.parent.glob("lib/python*/site-packages")
    packages = [path.name for path in site.glob("*.dist-info")]
    assert len(packages) <= MOST_PACKAGES, packages
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) <= MOST_BYTES
    code = (
        f"from delayq import Client, Message; c = Client('{valkey.url}'); m = Message(topic='t', body=1, delay_time=9)"
    )
    run(of_client / "python", "-c", f"{code}; assert c.schedule(m).created", cwd=tmp_path)

    for words, what, extra in (
        (("delayq", "schedule", "t", "x", "--delay", "1h"), "the command line", "cli"),
        (("delayq", "api"), "delayq api", "server"),
        (("python", "-c", "import delayq.targets.kafka.target"), "a kafka target", "kafka"),
        (("python", "-c", "import delayq.targets.webhook.target"), "a webhook (an http or https target)", "webhook"),
    ):
        ran = subprocess.run(
            [of_client / words[0], *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.stderr.splitlines()[-1].partition(": ")[2].rstrip(".") == (
            f"{what} needs the extra [{extra}]: pip install 'delayq[{extra}]'"
        )
        assert words[0] == "python" or (ran.returncode, ran.stderr.count("\n")) == (2, 1)


def test_the_units_are_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: apt install systemd")
    assert set(UNITS) == {"delayq-api.service", "delayq-worker.service", "delayq-coordinator.service"}
    (settings,) = [block.text for block in blocks_of(PAGE) if block.note == "file delayq.env"]
    assert set(re.findall(r"^(\w+)=", settings, re.MULTILINE)) <= set(map(variable, SETTINGS))
    for name, text in UNITS.items():  # the program has to be there
        (tmp_path / name).write_text(text.replace("/opt/delayq/bin/delayq", "/bin/true"))
    words = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    about = [line for line in ran.stderr.splitlines() if "delayq" in line]
    assert (ran.returncode, about) == (0, []), ran.stderr


@contextmanager
def started(name: str, bin: Path, folder: Path, settings: dict[str, str]) -> Iterator[OneProcess]:
    """The service of a unit, as the unit starts it."""
    (command,) = re.findall(r"^ExecStart=(.*)$", UNITS[f"delayq-{name}.service"], re.MULTILINE)
    words = shlex.split(command.replace("/opt/delayq/bin", str(bin)))
    process = OneProcess(name, words, settings, folder / f"{name}.log")
    process.start()
    try:
        yield process
        assert process.stop() == 0, process.said()
    finally:
        process.kill()


def test_the_services_of_the_units_run_from_the_wheel_and_deliver(
    of_server: Path, valkey: ServerUnderTest, zookeeper: ZooKeeperServer, zookeeper_root: str, tmp_path: Path
) -> None:
    looked = json.loads(run(of_server / "python", "-c", LOOK, cwd=tmp_path))
    assert looked[0] == looked[1] == ["delayq", "pyspark_delayq"]  # so `import api` fails

    settings = {"redis_url": valkey.url, "redis_timeout": str(REDIS_TIMEOUT), "api_port": str(free_port())}
    settings |= {"zookeeper": zookeeper.hosts, "zookeeper_root": zookeeper_root, "node": "here"}
    with (
        started("api", of_server, tmp_path, settings),
        started("worker", of_server, tmp_path, settings) as worker,
        started("coordinator", of_server, tmp_path, settings) as coordinator,
        Client(valkey.url) as client,
        httpx2.Client(base_url=f"http://{LOCALHOST}:{settings['api_port']}", timeout=HTTP_TIMEOUT) as http,
    ):

        def ready() -> bool:
            try:
                return http.get("/readyz").status_code == 200
            except httpx2.HTTPError:
                return False

        eventually(ready, "the API is ready")
        assert http.get("/console/").status_code == 200  # its files are there, too
        words = [of_server / "delayq", "schedule", "orders", "hello", "--delay", "1ms", "--redis-url", valkey.url]
        eventually(lambda: worker.started, "the worker has started")
        run(*words, cwd=tmp_path)
        client.schedule(Message(topic="orders", body="again", delay_time=1))
        eventually(lambda: valkey.admin.xlen("orders") == 2, "both messages are in their stream")
        eventually(lambda: '"here"' in coordinator.said(), "the coordinator has printed who owns the queues")


def test_the_tests_of_the_page_run_where_the_wheel_is_all_there_is(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    bin = environment(tmp_path_factory.mktemp("testing") / "venv", wheel, "[testing]", "--no-compile", "pytest")
    (block,) = [block for block in blocks_of(TESTING) if block.note == "file test_orders.py"]
    (tmp_path / "test_orders.py").write_text(block.text)
    (tmp_path / "workers.py").write_text("raise SystemExit('a module of the application, and not the worker')\n")
    assert "2 passed" in run(bin / "python", "-m", "pytest", "-q", "test_orders.py", cwd=tmp_path)
