"""A browser, and what it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from delayq.api_keys import SCOPES
from testbed.chromium import find, running
from testbed.errors import ServerMissing
from tests.console.world import AnotherApi, World, small_world, whole_world
from tests.support.browser import Pages


@pytest.fixture(scope="session")
def program() -> str:
    """Where the browser is: asked for before anything is made for it to look at."""
    try:
        return find()
    except ServerMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def world(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The messages that all tests look at, and nobody touches."""
    with whole_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def own_world(program: str, tmp_path: Path) -> Iterator[World]:
    """Processes of a test's own, without messages: it may stop them."""
    with small_world(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def keyed(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnotherApi]:
    """The same messages, by an API that takes keys: of `boss`, who may do everything, and of others."""
    api = AnotherApi(world, tmp_path_factory.mktemp("keyed"))
    for name in ("boss", "leaver", "late", "locked"):
        api.keys.add(name)
    api.keys.add("reader", {"*": ["read"]})
    api.keys.add("shop", {"orders.*": SCOPES})
    api.keys.add("program", console=False)
    with api:
        yield api


@pytest.fixture(scope="module")
def chromium(program: str) -> Iterator[Browser]:
    """Of a file, not of all: while it runs, tests that are coroutines would find another event loop running."""
    with running() as browser:
        yield browser


@pytest.fixture
def pages(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Pages]:
    """Opens pages, in which nothing may go wrong: they are closed before what they look at."""
    if "own_world" in request.fixturenames:
        request.getfixturevalue("own_world")
    with Pages(chromium) as opened:
        yield opened
