from __future__ import annotations

import os
import tomllib

import pytest

from tests.house.processes import ROOT


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", ".gitignore", "docs/openapi.json"]
)
def test_what_a_newcomer_looks_for_is_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 0


@pytest.mark.parametrize("name", ["dev", ".ci/run"])
def test_what_is_run_by_name_is_executable(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


def test_the_license_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_no_package_under_tests_shadows_a_service() -> None:
    packages = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("__init__.py")}
    assert packages == {"tests/targets/adapters"}
