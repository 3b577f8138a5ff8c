"""./dev release --dry-run: the parts of a release are built, installed into empty environments, and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools import release
from tests.support.amounts import ALL

pytestmark = pytest.mark.long


def test_all_parts_have_one_version_install_into_empty_environments_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All parts with --all. Otherwise only those that no other long test builds."""
    parts = [part for part in release.PARTS if ALL or part in {"chart", "Go module"}]
    missing = release.rehearse("0.87.6", tmp_path, parts)
    if missing:
        pytest.skip(capsys.readouterr().err)
    made = {"sdist", "wheel", *parts} & release.FILES.keys()
    assert {path.name for path in tmp_path.iterdir()} == {release.FILES[part][0].format("0.87.6") for part in made}
