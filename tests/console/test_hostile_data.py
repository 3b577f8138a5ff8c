"""The console shows hostile ids, keys and bodies as the text that they are."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.world import HOSTILE_IDS, LARGE, MARKUP, World
from tests.support.browser import Pages, load, too_wide, violations

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

LISTS: Final = (
    "messages?topic=hostile.*",
    f"messages?key={quote(MARKUP, safe='')}",
    "audit",
    "topics?match=hostile.*",
    "dead-letters",
)


def test_a_message_is_found_by_every_id_and_shown_as_text(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/overview", width=320)
    main = page.get_by_role("main")
    for id in HOSTILE_IDS:
        page.get_by_role("searchbox").fill(id)
        page.get_by_role("searchbox").press("Enter")
        expect(main.get_by_role("heading", level=1)).to_contain_text(id)
        for text in ("hostile.all", MARKUP, "9223372036854775808"):
            expect(main).to_contain_text(text)
        expect(main.locator("img, script, iframe")).to_have_count(0)
        assert too_wide(page) == [], id
        load(page, page.evaluate("location.href"))
        expect(main).to_contain_text("hostile.all")


def test_an_id_that_browsers_take_for_a_way_up_shows_no_other_message(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/overview", accepts=["status of 40[045]"])
    for id in (".", ".."):
        load(page, f"{world.url}#/messages/{id}")
        expect(page.get_by_role("main").get_by_role("alert")).to_be_visible()


def test_a_large_body_is_cut_and_shown_whole_on_demand(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/no-such-page")
    for id in ("large-text", "large-json"):
        page.goto(f"{world.url}#/messages/{id}")
        expect(page.get_by_role("heading", level=1)).to_contain_text(id)
        body = page.locator("pre.body").first
        expect(page.get_by_text("The first 65,536 of")).to_be_visible()
        assert len(body.inner_text()) == 65_536
        page.get_by_role("button", name="Show all").click()
        expect(page.get_by_text("The first 65,536 of")).to_have_count(0)
        assert body.evaluate("(shown) => shown.textContent.length") > LARGE * 9 // 10


def test_lists_show_text_as_text(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/no-such-page", width=320)
    for place in LISTS:
        load(page, f"{world.url}#/{place}")
        expect(page.get_by_label("Paused:")).to_contain_text(MARKUP)
        expect(page.locator("img, main script, iframe")).to_have_count(0)
        assert too_wide(page) == [], place
        assert violations(page) == [], place
