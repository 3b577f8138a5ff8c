"""clients/typescript: its own tests, the quick starts of its README, and the story of all clients."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testbed import folders
from testbed.errors import ServerMissing
from tests.clients.conftest import Run, TellStory, run_program
from tests.docs.blocks import blocks_of
from tests.support.service import ROOT

pytestmark = pytest.mark.long

SOURCE = ROOT / "clients" / "typescript"
BLOCKS = [
    block.text for block in blocks_of(SOURCE / "README.md") if block.note == "run by tests/clients/test_typescript.py"
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the client, built."""
    try:
        modules = folders.find("openapi-typescript") / "node_modules"
    except ServerMissing as error:
        pytest.skip(str(error))
    # As deep in a folder as in the checkout, so that ../../docs and ../story.json are there, too.
    root = tmp_path_factory.mktemp("checkout")
    folder = root / "clients" / "typescript"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "build", "schema.ts"))
    (root / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "openapi.json", root / "docs")
    (folder / "node_modules").symlink_to(modules)
    run_program(["npm", "run", "build"], folder)
    run_program([modules / ".bin" / "tsc", "--project", "tsconfig.test.json"], folder)
    return folder


def test_its_own_tests_pass(package: Path) -> None:
    tests = sorted((package / "build" / "test").glob("*.test.js"))
    assert "# fail 0" in run_program(["node", "--test", *tests], package)


def test_it_tells_the_story_of_all_clients(package: Path, tell_story: TellStory) -> None:
    tell_story("ts", ["node", "build/test/story.js"], package)


@pytest.mark.parametrize("block", BLOCKS, ids=["quick-start", "more-calls"])
def test_the_readme_works_with_the_package_as_npm_installs_it(
    package: Path, run: Run, tmp_path: Path, block: str
) -> None:
    (packed,) = run_program(
        ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", tmp_path], package
    ).split()
    installed = tmp_path / "node_modules" / "@delayq" / "client"
    installed.mkdir(parents=True)
    run_program(["tar", "-xzf", tmp_path / packed, "--strip-components=1", "-C", installed], tmp_path)
    (tmp_path / "node_modules" / "@types").symlink_to(package / "node_modules" / "@types")
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (tmp_path / "readme.ts").write_text(block, encoding="utf-8")
    compiler = package / "node_modules" / ".bin" / "tsc"
    options = ["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node"]
    run_program([compiler, *options, "readme.ts"], tmp_path)
    assert "cancelled" in run(["node", "readme.js"], tmp_path)
