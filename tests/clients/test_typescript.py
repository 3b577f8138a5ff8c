"""clients/typescript: its own tests, the quick starts of its README, and the story of all clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import Run, TellStory, compile_typescript, run_program
from tests.docs.blocks import blocks_of
from tests.support.service import ROOT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("typescript")]

SOURCE = ROOT / "clients" / "typescript"
BLOCKS = [
    block.text for block in blocks_of(SOURCE / "README.md") if block.note == "run by tests/clients/test_typescript.py"
]
NAMES = ("quick-start", "more-calls")


@pytest.fixture(scope="module")
def tested(typescript_package: Path) -> Path:
    """The client with its tests and its story, compiled."""
    compiler = typescript_package / "node_modules" / ".bin" / "tsc"
    run_program([compiler, "--project", "tsconfig.test.json"], typescript_package)
    return typescript_package


def test_its_own_tests_pass(tested: Path) -> None:
    tests = sorted((tested / "build" / "test").glob("*.test.js"))
    assert "# fail 0" in run_program(["node", "--test", *tests], tested)


def test_it_tells_the_story_of_all_clients(tested: Path, tell_story: TellStory) -> None:
    tell_story("ts", ["node", "build/test/story.js"], tested)


@pytest.fixture(scope="module")
def readme(typescript_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of the README, compiled with the package as npm installs it."""
    folder = tmp_path_factory.mktemp("readme")
    pack = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder]
    (packed,) = run_program(pack, typescript_package).split()
    installed = folder / "node_modules" / "@delayq" / "client"
    installed.mkdir(parents=True)
    run_program(["tar", "-xzf", folder / packed, "--strip-components=1", "-C", installed], folder)
    compile_typescript(typescript_package, folder, dict(zip(NAMES, BLOCKS, strict=True)))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_works_with_the_package_as_npm_installs_it(readme: Path, run: Run, name: str) -> None:
    assert "cancelled" in run(["node", f"{name}.js"], readme)
