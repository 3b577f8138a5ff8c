"""The console behind a web server that serves it under a path of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.console.test_pages import settle
from tests.console.test_rights import log_in
from tests.console.world import AnotherApi, World
from tests.support.browser import Pages
from tests.support.reverse_proxy import ReverseProxy

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

PREFIX: Final = "/ops/delayq/"


@pytest.fixture
def proxy(world: World) -> Iterator[ReverseProxy]:
    with ReverseProxy(world.service.port, PREFIX) as running:
        yield running


@pytest.mark.parametrize(
    "place", ["overview", "messages/unpaid-0", "timeline", "topics", "queues", "dead-letters", "audit"]
)
def test_pages_are_the_same_under_a_path(pages: Pages, proxy: ReverseProxy, place: str) -> None:
    page = pages.open(f"{proxy.url}console/#/{place}")
    settle(page)
    expect(page.get_by_role("contentinfo")).to_contain_text("As of")
    expect(page.get_by_role("main").get_by_role("alert")).to_have_count(0)


def test_without_its_last_slash_it_is_found_too(pages: Pages, proxy: ReverseProxy) -> None:
    page = pages.open(f"{proxy.url}console")
    expect(page.get_by_role("navigation")).to_be_visible()
    page.get_by_role("link", name="HTTP API").click()
    expect(page.locator("#swagger-ui")).to_contain_text("/v1/messages")


def test_a_session_is_of_that_path_alone(pages: Pages, keyed: AnotherApi) -> None:
    with ReverseProxy(keyed.service.port, PREFIX) as proxy:
        page = pages.open(f"{proxy.url}console/", accepts=["status of 401"])
        log_in(page, keyed.keys.texts["boss"])
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        assert [one["path"] for one in page.context.cookies()] == [PREFIX]
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Key of the API")).to_be_visible()
        assert page.context.cookies() == []
