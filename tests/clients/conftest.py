"""A service for the clients of the API, and what is true after one of them ran the story of clients/story.json."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pytest
import redis

from delayq.embedded import EmbeddedServer
from testbed import folders
from testbed.errors import ServerMissing
from testbed.jars import SHORT_LIVED
from tests.clients.dropping_proxy import DroppingProxy
from tests.support.service import ROOT, Service
from tests.support.waiting import eventually

STORY: Final = ROOT / "clients" / "story.json"
#: Each of five clients makes 2,016 calls: 84 rounds of 24. A fifth of the answers is dropped.
ROUNDS: Final = 84
CALLS: Final = ROUNDS * 24
#: A message that was handed back stays away until the story has ended.
POLICY: Final = {"match": "story.received.*", "backoff": ["10h"]}

_MAVEN: Final = {"MAVEN_OPTS": " ".join(SHORT_LIVED)}
JAVAC: Final = ("javac", *(f"-J{option}" for option in SHORT_LIVED))

#: Runs a program in a folder with the URL of the API, and returns what it printed.
Run = Callable[[Sequence[Any], Path], str]
#: Runs a client's story under a name of the run: the program gets the arguments STORY RUN ROUNDS AT_ONCE.
TellStory = Callable[[str, Sequence[Any], Path], None]
#: Runs a consumer under a name of the run: the program gets the arguments TOPIC COUNT, and ends after so many messages.
#: It prints the id of each message, its number in the JSON of its body, its deliveries, and how many messages another consumer
#: received while it was handled.
Consume = Callable[[str, Sequence[Any], Path], None]


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("clients")
    with EmbeddedServer(data_dir=folder / "valkey") as server, Service(folder, server.url) as started:
        started.http.put("/v1/policies/story", json=POLICY).raise_for_status()
        yield started


@pytest.fixture
def run(service: Service) -> Run:
    return lambda words, folder: run_program(words, folder, DELAYQ_API_URL=service.url)


def run_program(words: Sequence[Any], folder: Path, **environment: str) -> str:
    """What a program printed. It fails with all that was printed if the program did not end well."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | _MAVEN | environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def typescript_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the client, built. The tests that use it have the mark `xdist_group("typescript")`."""
    try:
        modules = folders.find("openapi-typescript") / "node_modules"
    except ServerMissing as error:
        pytest.skip(str(error))
    # As deep in a folder as in the checkout, so that ../../docs and ../story.json are there, too.
    root = tmp_path_factory.mktemp("checkout")
    folder = root / "clients" / "typescript"
    made = shutil.ignore_patterns("node_modules", "dist", "build", "schema.ts")
    shutil.copytree(ROOT / "clients" / "typescript", folder, ignore=made)
    (root / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "openapi.json", root / "docs")
    (folder / "node_modules").symlink_to(modules)
    run_program(["npm", "run", "build"], folder)
    return folder


@pytest.fixture(scope="session")
def java_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the client, compiled and tested. The tests that use it have the mark `xdist_group("java")`."""
    folder = tmp_path_factory.mktemp("java") / "client"
    shutil.copytree(ROOT / "clients" / "java", folder, ignore=shutil.ignore_patterns("target"))
    run_program(["mvn", "--batch-mode", "--quiet", "package"], folder)  # JUnit's tests, with warnings as errors
    return folder


def compile_typescript(package: Path, folder: Path, programs: Mapping[str, str]) -> None:
    """Write programs to a folder and compile them in one run. Types of the client's own files were checked by its build."""
    (folder / "node_modules" / "@types").symlink_to(package / "node_modules" / "@types")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    for name, text in programs.items():
        (folder / f"{name}.ts").write_text(text, encoding="utf-8")
    compiler = package / "node_modules" / ".bin" / "tsc"
    options = ["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node", "--skipLibCheck"]
    run_program([compiler, *options, *(f"{name}.ts" for name in programs)], folder)


@pytest.fixture
def tell_story(service: Service) -> TellStory:
    def tell(run: str, words: Sequence[Any], folder: Path) -> None:
        with DroppingProxy(service.port) as proxy:
            printed = run_program([*words, STORY, run, ROUNDS, 8], folder, DELAYQ_API_URL=proxy.url)
        assert int(printed.split()[-1]) == CALLS
        assert proxy.dropped > CALLS / 8, "no answer was dropped: the story shows nothing"
        left = service.http.get("/v1/messages", params={"topic": "story.kept", "idPrefix": run}).json()
        assert left["messages"] == [], "the story cancels every message that it keeps, so one was there twice"
        wanted = Counter({f"{run}-{n}-b2": 1 for n in range(ROUNDS)})
        with redis.Redis.from_url(service.settings["redis_url"], protocol=2) as client:

            def arrived() -> Counter[str]:
                entries: Any = client.xrange("story.delivered")
                return Counter(id for _, fields in entries if (id := fields[b"id"].decode()).startswith(f"{run}-"))

            eventually(lambda: arrived().keys() == wanted.keys(), "each message that was due has been delivered")
            assert arrived() == wanted, "a message was scheduled twice"
            received = f"story.received.{run}"
            assert client.xlen(received) == 2 * ROUNDS
            (group,) = cast("Any", client.xinfo_groups(received))
            assert (group["lag"], group["pending"]) == (0, ROUNDS), "each round acknowledges one message"

    return tell


@pytest.fixture
def consume(service: Service) -> Consume:
    def consume(run: str, words: Sequence[Any], folder: Path) -> None:
        topic, ids = f"consumed.{run}", [f"consumed-{run}-{order}" for order in range(4)]
        for order, id in enumerate(ids):
            assert service.schedule(topic, id=id, body={"order": order}, delayTime=0).status_code == 201
        printed = run_program([*words, topic, len(ids)], folder, DELAYQ_API_URL=service.url)
        assert sorted(printed.split("\n")) == ["", *(f"{id} {order} 1 0" for order, id in enumerate(ids))]
        (group,) = service.http.get("/v1/consumers", params={"match": topic}).json()["groups"]
        assert group["lag"] == 0, "each message is acknowledged"

    return consume
