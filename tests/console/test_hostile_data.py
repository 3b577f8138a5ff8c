"""What people who mean no good might schedule is shown as the text that it is."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.test_pages import settle
from tests.console.world import HOSTILE_IDS, LARGE, MARKUP, World
from tests.support.browser import Pages, too_wide, violations

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

LISTS: Final = ("messages?topic=hostile.*", f"messages?key={quote(MARKUP, safe='')}", "audit", "topics", "dead-letters")


@pytest.mark.parametrize("id", HOSTILE_IDS)
def test_a_message_is_found_by_every_id_and_shown_as_text(pages: Pages, world: World, id: str) -> None:
    page = pages.open(f"{world.url}#/overview", width=320)
    page.get_by_role("searchbox").fill(id)
    page.get_by_role("searchbox").press("Enter")
    main = page.get_by_role("main")
    expect(main).to_contain_text("hostile.all")
    for text in (id, MARKUP, "9223372036854775808"):
        expect(main).to_contain_text(text)
    expect(main.locator("img, script, iframe")).to_have_count(0)
    assert too_wide(page) == []
    link = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_role("main")).to_contain_text("hostile.all")


@pytest.mark.parametrize("id", [".", ".."])
def test_an_id_that_browsers_take_for_a_way_up_shows_no_other_message(pages: Pages, world: World, id: str) -> None:
    page = pages.open(f"{world.url}#/messages/{id}", accepts=["status of 40[045]"])
    expect(page.get_by_role("main").get_by_role("alert")).to_be_visible()


@pytest.mark.parametrize("id", ["large-text", "large-json"])
def test_a_large_body_is_cut_and_shown_whole_when_wanted(pages: Pages, world: World, id: str) -> None:
    page = pages.open(f"{world.url}#/messages/{id}")
    body = page.locator("pre.body")
    expect(page.get_by_text("The first 65,536 of")).to_be_visible()
    assert len(body.inner_text()) == 65_536
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_text("The first 65,536 of")).to_have_count(0)
    assert body.evaluate("(shown) => shown.textContent.length") > LARGE * 9 // 10


@pytest.mark.parametrize("place", LISTS)
def test_lists_show_text_as_text(pages: Pages, world: World, place: str) -> None:
    page = pages.open(f"{world.url}#/{place}", width=320)
    settle(page)
    expect(page.get_by_label("Paused:")).to_contain_text(MARKUP)
    expect(page.locator("img, main script, iframe")).to_have_count(0)
    assert too_wide(page) == []
    assert violations(page) == []
