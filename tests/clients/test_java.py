"""clients/java: its own tests, the quick start of its README, and the story of all clients."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients.conftest import Run, TellStory, run_program
from tests.docs.blocks import blocks_of
from tests.support.service import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("mvn") is None or shutil.which("javac") is None,
        reason="no mvn or javac on PATH: install Maven and a JDK (apt install maven default-jdk)",
    ),
]

SOURCE = ROOT / "clients" / "java"
(QUICK_START,) = (
    block.text for block in blocks_of(SOURCE / "README.md") if block.note == "run by tests/clients/test_java.py"
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the client, compiled and tested."""
    folder = tmp_path_factory.mktemp("java") / "client"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("target"))
    run_program(["mvn", "--batch-mode", "--quiet", "package"], folder)  # JUnit's tests, with warnings as errors
    return folder


def test_it_tells_the_story_of_all_clients(package: Path, tell_story: TellStory) -> None:
    classes = f"{package / 'target' / 'classes'}:{package / 'target' / 'test-classes'}"
    tell_story("java", ["java", "-cp", classes, "io.delayq.Story"], package)


def test_the_quick_start_works_with_the_jar(package: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "QuickStart.java").write_text(QUICK_START, encoding="utf-8")
    (jar,) = (package / "target").glob("delayq-client-*.jar")
    run_program(["javac", "-cp", jar, "QuickStart.java"], tmp_path)
    assert run(["java", "-cp", f"{jar}:.", "QuickStart"], tmp_path).split()[-1] == "cancelled"
