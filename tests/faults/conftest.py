"""Faults are injected into real servers and processes; no setting of the caller's gets in."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.flow import ROUTES
from tests.support.servers import ServerUnderTest, real_server
from tests.support.service import Service


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def plain_server() -> Iterator[ServerUnderTest]:
    """The Valkey of `plain`."""
    with real_server("valkey") as server:
        yield server


@pytest.fixture(scope="session")
def plain(plain_server: ServerUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with one worker and nothing broken, which tests share: each has topics and ids of its own."""
    folder = tmp_path_factory.mktemp("plain")
    with Service(folder, plain_server.url, routes=ROUTES, retry_base="50", retry_cap="500") as service:
        yield service
