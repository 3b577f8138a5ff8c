"""The command line finds the server that ./dev up started, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from delayq.cli.options import settings_of
from delayq.cli.started_server import NAME, noted, noted_url

URL = "redis://127.0.0.1:6389/0"


@pytest.fixture(autouse=True)
def environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("DELAYQ_REDIS_URL", raising=False)


def test_it_is_known_while_it_runs_and_not_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noted_url() is None
    with noted(URL) as mine:
        assert mine and noted_url() == URL == settings_of(None).redis_url
        assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert noted_url() is None
    assert settings_of(None).redis_url == "redis://127.0.0.1:6379/0"
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nowhere"))  # where nothing can be written there is no note
    with noted(URL) as mine:
        assert not mine and noted_url() is None


def test_what_is_named_counts_more_and_gets_no_password_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with noted(URL):
        assert settings_of("redis://named:1/0").redis_url == "redis://named:1/0"
        with monkeypatch.context() as patch:
            patch.setenv("DELAYQ_REDIS_URL", "redis://set:1/0")
            assert settings_of(None).redis_url == "redis://set:1/0"
        monkeypatch.setenv("DELAYQ_REDIS_PASSWORD", "canary")
        assert settings_of(None).redis_url == URL


def test_a_second_one_is_not_noted_and_the_first_stays() -> None:
    with noted(URL):
        with noted("redis://127.0.0.1:6390/0") as mine:
            assert not mine
        assert noted_url() == URL


@pytest.mark.long
def test_a_note_whose_writer_was_killed_names_nobody(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; sys.prefix = sys.argv[1]\n"
        "from delayq.cli.started_server import noted\n"
        "with noted('redis://127.0.0.1:1/0') as mine: os.kill(os.getpid(), signal.SIGKILL if mine else signal.SIGTERM)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert ran.returncode == -9
    assert (tmp_path / NAME).read_text() == "redis://127.0.0.1:1/0"
    assert noted_url() is None
    with noted(URL):
        assert noted_url() == URL
