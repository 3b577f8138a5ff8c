"""Faults are injected into real servers and processes; no setting of the caller's gets in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from delayq.config import Settings, load_settings
from delayq.testing import MemoryTarget
from tests.faults.house import House, new_house
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT


@pytest.fixture
def settings(valkey: ServerUnderTest) -> Settings:
    return load_settings(redis_url=valkey.url, redis_timeout=REDIS_TIMEOUT)


@pytest.fixture
def target() -> MemoryTarget:
    return MemoryTarget()


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


class SharedHouse:
    """The house of all tests, and a new one behind a test that failed: nobody knows what that has left."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._stack = ExitStack()
        self._house: House | None = None

    def healed(self) -> House:
        if self._house is None:
            self._house = self._stack.enter_context(new_house(self._folders.mktemp("house")))
        self._house.heal()
        return self._house

    def close(self) -> None:
        if self._house is not None:
            for one in self._house.service.processes:
                one.kill()
        self._house = None
        self._stack.close()


@pytest.fixture(scope="session")
def shared_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedHouse]:
    houses = SharedHouse(tmp_path_factory)
    yield houses
    houses.close()


@pytest.fixture
def house(shared_house: SharedHouse, request: pytest.FixtureRequest) -> Iterator[House]:
    """The service as processes, healed. A file that uses it has the mark `xdist_group("house")`."""
    failed = request.session.testsfailed
    yield shared_house.healed()
    if request.session.testsfailed > failed:
        shared_house.close()
