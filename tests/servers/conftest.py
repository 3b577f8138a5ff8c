from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without anything that makes programs, and without what they made before."""
    monkeypatch.setenv("DELAYQ_JARS", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setattr(
        "shutil.which", lambda name: str(found) if (found := tmp_path / "bin" / name).exists() else None
    )
    monkeypatch.delenv("BROKEN", raising=False)
    return tmp_path
