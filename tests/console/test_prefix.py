"""The console behind a web server that serves it under a path of its own."""

from __future__ import annotations

from typing import Final

import pytest

pytest.importorskip("playwright", reason="no Playwright: pip install 'delayq[dev]'")

from playwright.sync_api import expect

from tests.console.test_rights import log_in
from tests.console.world import AnotherApi, World
from tests.support.browser import Pages, load
from tests.support.reverse_proxy import ReverseProxy

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

PREFIX: Final = "/ops/delayq/"


def test_pages_are_the_same_under_a_path(pages: Pages, world: World) -> None:
    with ReverseProxy(world.service.port, PREFIX) as proxy:
        page = pages.open(f"{proxy.url}console")
        for place in ("overview", "messages/unpaid-0", "timeline", "queues", "dead-letters"):
            load(page, f"{proxy.url}console/#/{place}")
            expect(page.get_by_role("contentinfo")).to_contain_text("As of")
            expect(page.get_by_role("main").get_by_role("alert")).to_have_count(0)
        page.get_by_role("link", name="HTTP API").click()
        expect(page.locator("#swagger-ui")).to_contain_text("/v1/messages")
        page.close()  # before the proxy stops


def test_a_session_is_of_that_path_alone(pages: Pages, keyed: AnotherApi) -> None:
    with ReverseProxy(keyed.service.port, PREFIX) as proxy:
        page = pages.open(f"{proxy.url}console/", accepts=["status of 401"])
        log_in(page, keyed.keys.texts["boss"])
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        assert [one["path"] for one in page.context.cookies()] == [PREFIX]
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Key of the API")).to_be_visible()
        assert page.context.cookies() == []
        page.close()  # before the proxy stops
