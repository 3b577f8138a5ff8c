"""The package of docs/targets-own.md: installed beside delayq, found by its entry point, at work in a worker process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from delayq.embedded import EmbeddedServer
from tests.docs.test_targets import CODE, ENTRY_POINT, ROUTES
from tests.support.service import Service
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package in it, as pip makes it."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    source.mkdir()
    (source / "my_targets.py").write_text(CODE, encoding="utf-8")
    (source / "pyproject.toml").write_text(ENTRY_POINT, encoding="utf-8")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    ran = subprocess.run(
        [*install, "--target", str(folder / "there"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "there"


def test_a_worker_delivers_to_the_target_of_a_package_that_is_installed(
    own_valkey: EmbeddedServer, installed: Path, tmp_path: Path
) -> None:
    file = tmp_path / "orders.txt"
    routes = ROUTES.replace("/var/log/orders.txt", str(file))
    service = Service(tmp_path, own_valkey.url, queues="2", redis_timeout=str(REDIS_TIMEOUT), routes=routes)
    service.workers[0].environment["PYTHONPATH"] = str(installed)
    with service:
        for id, body in (("one", "order 1"), ("two", "order\n2")):
            assert service.schedule("orders.paid", id=id, body=body, delayTime=0).status_code == 201
        eventually(lambda: file.read_bytes() == b"one\torder 1\n", "the message is in the file")
        (letter,) = eventually(
            lambda: service.http.get("/v1/dead-letters").json()["deadLetters"], "the other one is a dead letter"
        )
        assert (letter["id"], letter["reason"]) == ("two", "a line break in the body")
    assert service.workers[0].returncode == 0
