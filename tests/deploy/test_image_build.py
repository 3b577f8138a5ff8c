"""The image is built, and its programs run as they should: on read-only files, as an unprivileged user, without rights."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import msgspec
import pytest

from delayq.embedded.processes import LOCALHOST, free_port
from devtools import constraints
from devtools.pages import ROOT
from testbed import image
from tests.deploy.boxes import Box
from tests.deploy.test_image import PROJECT, SERVICES
from tests.support.servers import ServerUnderTest, real_server
from tests.support.timeouts import HTTP_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

#: What redis-py asks for below Python 3.11.3, which the stand-in of the base has and the base has not.
OF_THE_STAND_IN = {"async-timeout"}
#: What groupadd and useradd write.
USERS = {
    f"etc/{name}{end}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid") for end in ("", "-")
}


def built(target: str) -> str:
    """The image of a target, built."""
    if reason := image.why_not():
        pytest.skip(reason)
    try:
        image.make_base()
    except image.CannotBuild as error:
        pytest.skip(f"the stand-in of the base image cannot be made of Debian's packages: {error}")
    return image.build(target)


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """The files of the services' image."""
    name = built("delayq")
    with image.mounted(name) as root:
        yield Box(root, image.config_of(name))


@pytest.fixture(scope="module")
def added(box: Box) -> dict[str, os.stat_result]:
    """What the image has beyond its base, or in another version."""
    with image.mounted(image.BASE) as base:
        before = files(base)
        return {path: found for path, found in files(box.root).items() if not same(found, before.get(path))}


@pytest.fixture(scope="module")
def redis() -> Iterator[ServerUnderTest]:
    """A server that keeps what it is given, without which an API is not ready."""
    with real_server("valkey") as server:
        yield server


def files(root: Path) -> dict[str, os.stat_result]:
    """All that lies there, without folders."""
    found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {str(path.relative_to(root)): path.lstat() for path in found}


def same(one: os.stat_result, other: os.stat_result | None) -> bool:
    return other is not None and (one.st_size, int(one.st_mtime)) == (other.st_size, int(other.st_mtime))


def test_it_says_how_it_is_run(box: Box) -> None:
    assert box.config["Cmd"] == ["python", "-m", "api"] and not box.config["Entrypoint"]
    assert (box.config["User"], box.config["WorkingDir"]) == ("10001:10001", "/tmp")
    assert set(box.config["ExposedPorts"]) == {"8080/tcp", "8081/tcp"} and box.config["StopSignal"] == "SIGTERM"
    assert box.config["Labels"]["org.opencontainers.image.version"] == PROJECT["version"]


def test_it_adds_its_own_files_and_nothing_that_it_was_built_with(box: Box, added: dict[str, os.stat_result]) -> None:
    elsewhere = {path for path in added if not path.startswith(("usr/local/bin/", "usr/local/lib/python3"))}
    assert elsewhere <= {*USERS, "app"}  # a link; so no package of Debian's, no cache, no sources
    mine = {path.partition("/delayq/_services/")[2] for path in added if not path.endswith(".pyc")} - {""}
    files = [file for name in SERVICES for file in (ROOT / name).rglob("*.py")]
    files += [file for file in (ROOT / "api" / "console").rglob("*") if file.is_file()]
    assert mine == {"docs/runbook.md", *(str(file.relative_to(ROOT)) for file in files)}
    assert "delayq:x:10001:10001::/tmp:/usr/sbin/nologin" in (box.root / "etc/passwd").read_text().splitlines()


def test_its_user_can_read_all_and_change_nothing_and_everything_is_compiled(added: dict[str, os.stat_result]) -> None:
    for path, found in added.items():
        assert (found.st_uid, found.st_gid) in {(0, 0), (0, 42)}, path  # 42: shadow
        assert stat.S_ISLNK(found.st_mode) or not found.st_mode & (stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID), path
        assert path in USERS or found.st_mode & stat.S_IROTH, path
    modules = {path for path in added if path.endswith(".py")}
    compiled = {path for path in added if path.endswith(".pyc")}  # Python cannot write them later
    assert len(modules) > 1_000
    for path in modules:
        folder, _, name = path.rpartition("/")
        assert f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-311.pyc" in compiled


def test_it_has_what_is_pinned_and_each_what_it_asks_for(box: Box, added: dict[str, os.stat_result]) -> None:
    # Nothing is resolved as wheels are installed: whether they fit each other is asked here.
    checked = box.run("python", "-m", "pip", "check")
    assert checked.returncode == 0, checked.stdout
    (packages,) = {path.partition("/delayq/")[0] for path in added if path.endswith("/delayq/py.typed")}
    listed = box.run("python", "-m", "pip", "list", "--format", "freeze", "--path", f"/{packages}")
    found = dict(line.lower().replace("_", "-").split("==") for line in listed.stdout.splitlines())
    for other in OF_THE_STAND_IN | {"delayq", "pip", "wheel"}:
        found.pop(other, None)
    assert found == {name: version for name, version in constraints.pins().items() if name in found}
    assert {"fastapi", "kazoo", "confluent-kafka", "pika", "rocketmq-python-client", "httpcore2"} <= set(found)


def test_its_commands_start_on_a_read_only_root(box: Box) -> None:
    ran = box.run("delayq", "version")
    assert (ran.returncode, ran.stdout) == (0, f"delayq {PROJECT['version']}\n"), ran.stderr
    ran = box.run("python", "-m", "coordinator", "--once")
    assert ran.returncode == 2 and "DELAYQ_ZOOKEEPER is not set" in ran.stderr
    for command in (("python", "-m", "api"), ("delayq", "api")):
        ran = box.run(*command, DELAYQ_API_HOST="0.0.0.0")
        assert ran.returncode == 2 and "no keys are set" in ran.stderr
    modules = ", ".join(f"delayq.targets.{one}.target" for one in ("kafka", "rocketmq", "rabbitmq", "webhook"))
    ran = box.run("python", "-c", f"import {modules}, opentelemetry.sdk.trace, coordinator.zookeeper")
    assert ran.returncode == 0, ran.stderr
    ran = box.run("touch", "/tmp/mine", "/app/mine")
    assert ran.returncode == 1 and "'/app/mine': Read-only" in ran.stderr and "/tmp/mine" not in ran.stderr


def test_an_api_and_a_worker_deliver_a_message_and_end_when_they_are_told(
    box: Box, redis: ServerUnderTest, tmp_path: Path
) -> None:
    port = str(free_port())
    settings = {"DELAYQ_REDIS_URL": redis.url, "DELAYQ_API_PORT": port}
    with ExitStack() as stack:
        api = box.start(log=tmp_path / "api.log", DELAYQ_TRACES="otlp", **settings)
        stack.callback(api.kill)
        worker = box.start("python", "-m", "workers", log=tmp_path / "worker.log", **settings)
        stack.callback(worker.kill)
        http = stack.enter_context(httpx2.Client(base_url=f"http://{LOCALHOST}:{port}", timeout=HTTP_TIMEOUT))

        def ready() -> bool:
            try:
                return bool(http.get("/readyz").status_code == 200)
            except httpx2.HTTPError:
                return False

        eventually(ready, "the API is ready")
        message = {"topic": "orders.unpaid", "body": {"order": 42}, "delayTime": "1ms", "id": "unpaid-42"}
        assert http.post("/v1/messages", json=message).status_code in (200, 201)
        eventually(lambda: redis.admin.xlen("orders.unpaid") == 1, "it is delivered")
        script = str(ROOT / "charts" / "delayq" / "files" / "smoke.py")  # what `helm test` runs
        words = [sys.executable, "-W", "error", script, f"http://{LOCALHOST}:{port}", "orders.test"]
        ran = subprocess.run(words, env={"no_proxy": "*"}, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout == "the API is ready\na message was scheduled, seen and cancelled\n"
        for one in (api, worker):
            status = one.status()
            assert status["Uid"].split() == ["10001"] * 4 and status["NSpid"].split()[-1] == "1"
            assert int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1"
        assert worker.stop() == 0, worker.said()
        assert api.stop() == 0, api.said()


def test_spark_reads_a_table_by_java(redis: ServerUnderTest) -> None:
    if not os.environ.get("DELAYQ_TEST_SPARK_IMAGE"):
        pytest.skip("the image with Spark takes minutes and a gigabyte to build: set DELAYQ_TEST_SPARK_IMAGE=1")
    name = built("spark")
    with image.mounted(name) as root:
        box = Box(root, image.config_of(name), "exec")
        assert box.run("python", "-m", "pip", "check").returncode == 0
        (root / "tables").mkdir()
        (root / "tables" / "orders.csv").write_bytes((ROOT / "deploy" / "tables" / "orders.csv").read_bytes())
        compose = msgspec.yaml.decode((ROOT / "docker-compose.yml").read_text())["services"]
        words = [*compose["backfill"]["command"], "--master", "local[1]", "--json"]
        ran = box.run(*words, DELAYQ_REDIS_URL=redis.url)
    assert ran.returncode == 0, ran.stderr
    assert '"scheduled":2' in ran.stdout.replace(" ", "")
