"""clients/go: its own tests, the quick start of its README, and the story of all clients."""

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
        shutil.which("go") is None, reason="no go on PATH: install Go 1.23 or newer (https://go.dev/dl)"
    ),
]

SOURCE = ROOT / "clients" / "go"
(QUICK_START,) = (
    block.text for block in blocks_of(SOURCE / "README.md") if block.note == "run by tests/clients/test_go.py"
)
MODULE = "github.com/delayq/delayq/clients/go"


def test_its_own_tests_pass_and_go_vet_and_gofmt_find_nothing() -> None:
    assert run_program(["gofmt", "-l", "."], SOURCE) == ""
    run_program(["go", "vet", "./..."], SOURCE)
    run_program(["go", "test", "-count=1", "./..."], SOURCE)


def test_it_tells_the_story_of_all_clients(tell_story: TellStory, tmp_path: Path) -> None:
    run_program(["go", "build", "-o", tmp_path / "story", "./internal/story"], SOURCE)
    tell_story("go", [tmp_path / "story"], tmp_path)


def test_the_quick_start_works(run: Run, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(QUICK_START, encoding="utf-8")
    module = f"module example\n\ngo 1.23\n\nrequire {MODULE} v0.0.0\n\nreplace {MODULE} => {SOURCE}\n"
    (tmp_path / "go.mod").write_text(module, encoding="utf-8")
    assert run(["go", "run", "."], tmp_path).split()[-1] == "cancelled"
