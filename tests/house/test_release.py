"""./dev release: one version in all files and the commands that publish it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devtools import release
from tests.house.processes import ROOT


def test_all_files_name_the_version_of_pyproject() -> None:
    assert list(release.differences(ROOT)) == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that name the version."""
    for name in (*release.PLACES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_version_is_written_into_all_of_them_and_into_the_changelog(copy: Path) -> None:
    before = release.version_of(copy)
    for _ in range(2):
        release.write(copy, "0.87.6")
        assert (release.version_of(copy), list(release.differences(copy))) == ("0.87.6", [])
        changes = (copy / "CHANGELOG.md").read_text()
        assert changes.count("## 0.87.6 - 20") == 1 and f"## {before}" in changes
        assert changes.index("## Unreleased\n") < changes.index("## 0.87.6 - 20") < changes.index("### Added")

    compose = copy / "docker-compose.yml"
    compose.write_text(compose.read_text().replace("0.87.6", "0.87.5", 1))
    assert list(release.differences(copy)) == [
        "docker-compose.yml names the version 0.87.6 1 times, and should do so 2 times"
    ]


def test_the_commands_publish_every_part_after_the_rehearsal(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "ROOT", copy)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost")
    release.run("git", "init", "--quiet", folder=copy)
    assert release.main("0.87.6") == 1
    assert capsys.readouterr().err == "dev: the checkout has changes: commit them first\n"
    release.run("git", "add", "--all", folder=copy)
    release.run(*git, "commit", "--quiet", "--no-verify", "--message", "x", folder=copy)
    release.run("git", "tag", "v1.0.0", folder=copy)
    assert release.main("1.0.0") == 1
    assert "there is a tag v1.0.0 already" in capsys.readouterr().err

    assert release.main("0.87.6") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == [
        'git commit --all --message "Release 0.87.6"',
        "./dev check && ./dev test --all",
        "./dev release 0.87.6 --dry-run",
    ]
    for name, _, _ in release.FILES.values():
        assert any(f"dist/{name.format('0.87.6')}" in line for line in printed[3:]), name
    assert any("push origin HEAD v0.87.6 clients/go/v0.87.6" in line for line in printed)
    assert release.version_of(copy) == "0.87.6"
