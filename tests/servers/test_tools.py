"""Where programs written in Go come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import __main__, tools
from testbed.errors import ServerMissing
from testbed.tools import LINKED, PACKAGES, fetch, find

#: A Go that makes the program it is asked for, or fails as Go does, and notes how it was called.
GO = """#!/bin/sh
echo "$CGO_ENABLED $*" >>{calls}
[ -z "$BROKEN" ] || {{ echo 'go: downloading x v1'; echo "$BROKEN"; exit 1; }} >&2
for name in helm promtool; do printf '#!/bin/sh\\n' >"$GOBIN/$name" && chmod +x "$GOBIN/$name"; done
"""


@pytest.fixture
def go(machine: Path) -> Path:
    """One with Go; the file of its calls."""
    program, calls = machine / "bin" / "go", machine / "calls"
    program.write_text(GO.format(calls=calls))
    program.chmod(0o755)
    return calls


def test_a_tool_is_built_once_and_in_its_pinned_version(go: Path, machine: Path) -> None:
    old = machine / "cache" / "tools" / "helm-v3.0.0"
    old.parent.mkdir(parents=True)
    old.touch()
    built = fetch("helm")
    assert built == fetch("helm") == find("helm")
    assert built.name.startswith(f"helm-{PACKAGES['helm'].rpartition('@')[2]}")
    told, _ = LINKED["helm"]
    assert go.read_text() == f"0 install -ldflags {told} {PACKAGES['helm']}\n"
    assert [path.name for path in built.parent.iterdir()] == [built.name]


def test_one_that_go_does_not_install_is_built_in_a_module_made_for_it(go: Path, machine: Path) -> None:
    built = fetch("promtool")
    package, _, version = PACKAGES["promtool"].rpartition("@")
    assert built.name == f"promtool-{version}"
    words = go.read_text().split()
    assert (words[:4], words[-1]) == (["0", "build", "-mod=mod", "-tags"], package)
    assert [path.name for path in built.parent.iterdir()] == [built.name]


def test_what_was_fetched_goes_before_what_the_path_has(go: Path, machine: Path) -> None:
    installed = machine / "bin" / "helm"
    installed.touch(mode=0o755)
    assert find("helm") == installed
    assert fetch("helm") == find("helm") != installed


def test_without_go_or_the_tool_it_is_said_how_to_get_it(machine: Path) -> None:
    with pytest.raises(ServerMissing, match="dev brokers fetch helm builds it"):
        find("helm")
    with pytest.raises(ServerMissing, match=r"https://go\.dev/dl"):
        fetch("helm")


def test_a_build_that_fails_says_why_and_leaves_nothing(
    go: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKEN", "go: helm requires go >= 1.99.0 (running go 1.19)")
    assert __main__.main(["fetch", "helm"]) == 1
    said = capsys.readouterr().err
    assert said == "helm: helm could not be built: go: helm requires go >= 1.99.0 (running go 1.19)\n"
    assert [*(machine / "cache" / "tools").iterdir()] == []


def test_a_build_that_hangs_is_ended(go: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "bin" / "go").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(tools, "_SECONDS", 0.2)
    with pytest.raises(ServerMissing, match="was not built within"):
        fetch("helm")


def test_every_tool_is_pinned() -> None:
    for package in PACKAGES.values():
        assert package.rpartition("@")[2].startswith("v")
