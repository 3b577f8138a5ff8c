"""A browser, and the services whose pages it shows."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delayq.domain.api_keys import SCOPES
from testbed.errors import ServerMissing
from tests.console.world import AnotherApi, World, small_world, whole_world

#: The default layer runs without Playwright, and no test here belongs to it.
collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]

if TYPE_CHECKING:  # the default layer runs without Playwright
    from playwright.sync_api import Browser

    from tests.support.browser import Pages


@pytest.fixture(scope="session")
def program() -> str:
    """The browser's program. A test without one is skipped before it starts anything."""
    from testbed.chromium import find

    try:
        return find()
    except ServerMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def world(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service with messages, which all tests share and none changes."""
    with whole_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def own_world(program: str, tmp_path: Path) -> Iterator[World]:
    """A service for one test, without messages: the test may stop its processes."""
    with small_world(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def keyed(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnotherApi]:
    """Another API for the same messages, with keys: `boss` may do everything, the others less."""
    api = AnotherApi(world, tmp_path_factory.mktemp("keyed"))
    for name in ("boss", "leaver", "late", "locked"):
        api.keys.add(name)
    api.keys.add("reader", {"*": ["read"]})
    api.keys.add("shop", {"orders.*": SCOPES})
    api.keys.add("program", console=False)
    with api:
        yield api


_browser = ExitStack()
_browsers: list[Browser] = []


@pytest.fixture
def chromium(program: str) -> Browser:
    """A browser, which runs until a test does not need it: meanwhile this thread can run no coroutine of a test."""
    from testbed.chromium import running

    if not _browsers:
        _browsers.append(_browser.enter_context(running()))
    return _browsers[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Close the browser after the last test that needs it."""
    try:
        return (yield)
    finally:
        if "chromium" not in getattr(nextitem, "fixturenames", ()):
            _browsers.clear()
            _browser.close()


@pytest.fixture
def pages(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Pages]:
    """Opens pages, in which nothing may go wrong, and closes them before their API stops."""
    from tests.support.browser import Pages

    if "own_world" in request.fixturenames:
        request.getfixturevalue("own_world")
    with Pages(chromium) as opened:
        yield opened
