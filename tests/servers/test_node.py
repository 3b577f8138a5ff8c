"""Where programs for Node.js come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import __main__, node
from testbed.errors import ServerMissing
from testbed.node import FOLDERS, fetch, find

NAME = "openapi-typescript"
#: An npm that notes how it was called, and makes the folder that it is asked for or fails as npm does.
NPM = """#!/bin/sh
echo "$*" >>{calls}
[ -z "$BROKEN" ] || {{ printf 'npm error code E404\\nnpm error %s\\n' "$BROKEN"; exit 1; }} >&2
mkdir -p node_modules/.bin
"""


@pytest.fixture
def calls(machine: Path) -> Path:
    """One with Node.js; the file of npm's calls."""
    calls = machine / "calls"
    for name in ("node", "npm"):
        program = machine / "bin" / name
        program.write_text(NPM.format(calls=calls))
        program.chmod(0o755)
    return calls


def test_a_program_is_fetched_once_as_it_is_pinned_and_runs_no_scripts(calls: Path, machine: Path) -> None:
    old = machine / "cache" / "tools" / f"{NAME}-0123456789ab"
    old.mkdir(parents=True)
    fetched = fetch(NAME)
    assert fetched == fetch(NAME) == find(NAME)
    assert calls.read_text() == "ci --ignore-scripts --no-audit --no-fund --loglevel=error\n"
    for pin in ("package.json", "package-lock.json"):
        assert (fetched / pin).read_bytes() == (FOLDERS[NAME] / pin).read_bytes()
    assert (fetched / "node_modules" / ".bin").is_dir()
    assert [path.name for path in fetched.parent.iterdir()] == [fetched.name]


def test_without_node_or_the_program_it_is_said_how_to_get_it(machine: Path) -> None:
    for ask in (find, fetch):
        with pytest.raises(ServerMissing, match=r"Node\.js 20 or newer.*https://nodejs\.org"):
            ask(NAME)


def test_one_that_was_not_fetched_yet_says_how(calls: Path) -> None:
    with pytest.raises(ServerMissing, match="dev brokers fetch openapi-typescript fetches it"):
        find(NAME)


def test_a_fetch_that_fails_says_why_and_leaves_nothing(
    calls: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKEN", "404 Not Found - GET https://registry.example/typescript")
    assert __main__.main(["fetch", NAME]) == 1
    said = capsys.readouterr().err
    reason = "404 Not Found - GET https://registry.example/typescript"
    assert said == f"{NAME}: {NAME} could not be fetched: {reason}\n"
    assert [*(machine / "cache" / "tools").iterdir()] == []


def test_a_fetch_that_hangs_is_ended(calls: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "bin" / "npm").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(node, "_SECONDS", 0.2)
    with pytest.raises(ServerMissing, match="was not fetched within"):
        fetch(NAME)


def test_every_package_is_pinned_by_version_and_digest() -> None:
    for folder in FOLDERS.values():
        packages = json.loads((folder / "package-lock.json").read_text())["packages"]
        asked = json.loads((folder / "package.json").read_text())["dependencies"]
        assert packages.pop("")["dependencies"] == asked
        for name, version in asked.items():
            assert packages[f"node_modules/{name}"]["version"] == version
        assert all(one["integrity"].startswith("sha512-") for one in packages.values())
