"""Every page, with messages in every state: wide and narrow, light and dark, in both languages."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.world import World
from tests.support.browser import Pages, too_wide, violations

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Behind the # of the address.
PLACES: Final = (
    "overview",
    "messages",
    "messages?topic=orders.*&state=scheduled",
    "messages?find=order-17",
    "messages/unpaid-0",
    "messages/unpaid-100",
    "messages/billing.receipt-1",
    "messages/partners.orders-1",
    "messages/crm.contacts-0",
    "messages/sms.marketing-1",
    "messages/slow.reports-1",
    "messages/orders.paid-1",
    "messages/nobody-knows-it",
    "timeline",
    "topics",
    "topics/sms.marketing",
    "topics/orders.unpaid",
    "queues",
    "dead-letters",
    "audit",
    "no-such-page",
)
#: What nobody has is an answer, which Chromium tells as an error; a business key may be an id, which is asked for first.
NOBODYS: Final = ("404 .*/v1/messages/(nobody-knows-it|order-17)",)
#: How wide, and in which language.
LOOKS: Final = ((1440, "en-US"), (320, "en-US"), (320, "zh-CN"))


def settle(page: Page) -> None:
    """Until all that it asks for at first is there; after a login too, when the network has been idle once before."""
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_load_state("networkidle")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


@pytest.mark.parametrize(("width", "locale"), LOOKS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_wrong_with_a_page(pages: Pages, world: World, place: str, width: int, locale: str) -> None:
    page = pages.open(f"{world.url}#/{place}", width=width, locale=locale, accepts=NOBODYS)
    settle(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == []
    assert too_wide(page) == []
    expect(page.locator("html")).to_have_attribute("lang", locale.replace("en-US", "en"))


@pytest.mark.parametrize(
    ("place", "button"),
    [
        ("overview", "Keys"),
        ("messages/unpaid-0", "Cancel it"),
        ("messages/unpaid-0", "Move it"),
        ("messages/sms.marketing-1", "Deliver it now"),
        ("messages/billing.refund-1", "Put back"),
        ("dead-letters", "Delete …"),
        ("topics", "Pause"),
        ("topics", "New policy"),
        ("topics", "Change"),
        ("topics/sms.marketing", "Resume"),
    ],
)
def test_nothing_is_wrong_with_a_dialog(pages: Pages, world: World, place: str, button: str) -> None:
    page = pages.open(f"{world.url}#/{place}", width=320)
    page.get_by_role("button", name=button).first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    settle(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == []
    assert too_wide(page) == []
    assert page.get_by_role("dialog").evaluate("(one) => one.scrollWidth <= one.clientWidth")


@pytest.mark.parametrize(
    ("place", "summary"), [("overview", "View"), ("overview", "As a table"), ("messages", "More filters")]
)
def test_nothing_is_wrong_with_what_is_unfolded(pages: Pages, world: World, place: str, summary: str) -> None:
    page = pages.open(f"{world.url}#/{place}", width=320)
    page.get_by_text(summary, exact=True).first.click()
    settle(page)
    assert violations(page) == []
    assert too_wide(page) == []
