"""Every page, with messages in every state: on a desk and on a phone, light and dark, in both languages."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.world import World
from tests.support.browser import Pages, load, resize, settle, small_targets, too_wide, violations

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Places, which stand behind the # of the address.
PLACES: Final = (
    "overview",
    "timeline",
    "messages?limit=50",
    "messages?find=order-17",
    "messages?topic=orders.*&state=scheduled&limit=50",
    "messages/unpaid-0",
    "messages/unpaid-100",
    "messages/billing.receipt-1",
    "messages/partners.orders-1",
    "messages/crm.contacts-0",
    "messages/sms.marketing-1",
    "messages/slow.reports-1",
    "messages/orders.paid-1",
    "messages/nobody-knows-it",
    "topics?match=billing.*",
    "topics/sms.marketing",
    "topics/orders.unpaid",
    "queues",
    "consumers",
    "dead-letters",
    "audit",
    "runbook/delayqlate",
    "no-such-page",
)
#: Dialogs and what unfolds: the place, and the button or the text that opens it, maybe after another one of a narrow page.
OPENED: Final = (
    ("overview", "button", "Pages > Keys"),
    ("overview", "text", "Pages > View"),
    ("overview", "text", "As a table"),
    ("messages?limit=50", "text", "Filter > More filters"),
    ("messages/unpaid-0", "button", "Cancel"),
    ("messages/unpaid-0", "button", "Reschedule"),
    ("messages/sms.marketing-1", "button", "Deliver now"),
    ("messages/billing.refund-1", "button", "Redrive"),
    ("dead-letters", "button", "Discard …"),
    ("topics?match=sms.*", "button", "Pause"),
    ("topics?match=sms.*", "button", "Send a test message"),
    ("messages/unpaid-0", "text", "Read this message by a program"),
    ("topics?match=sms.*", "button", "New policy"),
    ("topics?match=mail.*", "button", "Change"),
    ("topics/sms.marketing", "button", "Resume"),
    ("topics/sms.marketing", "button", "Limit this topic"),
)
#: Chromium logs a 404. The console first looks for an id when it gets a business key.
NOT_FOUND: Final = ("404 .*/v1/messages/(nobody-knows-it|order-17)",)


@pytest.mark.parametrize("place", PLACES)
def test_a_page_is_accessible_and_fits_a_desk_and_a_phone_light_and_dark(
    pages: Pages, world: World, place: str
) -> None:
    page = pages.open(f"{world.url}#/{place}", width=390, accepts=NOT_FOUND)
    settle(page)
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []
    assert too_wide(page) == []
    assert small_targets(page) == []
    page.emulate_media(color_scheme="light")
    resize(page, 320, 800)
    assert too_wide(page) == []
    resize(page, 1280, 900)
    assert violations(page) == []
    assert too_wide(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    page.emulate_media(color_scheme="light")


def test_a_table_is_a_list_of_cards_on_a_phone(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/topics?match=billing.*", width=390)
    settle(page)
    row = page.get_by_role("region", name="Topics").get_by_role("row").filter(has_text="billing.refund")
    name, route = (row.locator("td").nth(one) for one in (0, 1))
    expect(route).to_have_text("billing")
    places = [one.bounding_box() for one in (name, route)]
    assert places[0] and places[1] and places[1]["y"] >= places[0]["y"] + places[0]["height"]
    expect(row.get_by_role("cell", name="Route billing", exact=True)).to_be_visible()
    resize(page, 1280, 900)
    places = [one.bounding_box() for one in (name, route)]
    assert places[0] and places[1] and places[1]["y"] == places[0]["y"]
    expect(row.get_by_role("cell", name="billing", exact=True)).to_be_visible()


def test_the_pages_are_behind_a_menu_on_a_phone(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/audit", width=390)
    settle(page)
    menu = page.get_by_role("button", name="Pages")
    expect(page.get_by_role("navigation")).to_be_hidden()
    menu.click()
    expect(menu).to_have_attribute("aria-expanded", "true")
    assert small_targets(page) == []
    assert too_wide(page) == []
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(page.get_by_role("heading", name="Topics", level=1)).to_be_focused()
    expect(page.get_by_role("navigation")).to_be_hidden()


@pytest.mark.parametrize("half", [0, 1])
def test_every_page_fits_in_chinese(pages: Pages, world: World, half: int) -> None:
    page = pages.open(f"{world.url}#/no-such-page", width=320, locale="zh-CN", accepts=NOT_FOUND)
    for place in PLACES[half::2]:
        load(page, f"{world.url}#/{place}")
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        assert too_wide(page) == [], place


@pytest.mark.parametrize(("place", "kind", "name"), OPENED)
def test_a_dialog_is_accessible_and_fits(pages: Pages, world: World, place: str, kind: str, name: str) -> None:
    page = pages.open(f"{world.url}#/{place}", width=320)
    settle(page)
    click(page, kind, name)
    settle(page)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    page.emulate_media(color_scheme="light")
    assert too_wide(page) == []
    assert small_targets(page) == []
    if kind == "button":
        dialog = page.get_by_role("dialog")
        assert dialog.evaluate("(one) => one.scrollWidth <= one.clientWidth")


def click(page: Page, kind: str, names: str) -> None:
    *before, name = names.split(" > ")
    for one in before:
        page.get_by_text(one, exact=True).first.click()
    if kind == "text":
        page.get_by_text(name, exact=True).first.click()
    else:
        page.get_by_role("button", name=name).first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
