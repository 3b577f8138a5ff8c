"""Messages in the console: found, shown, cancelled, moved, delivered now; dead letters are put back or deleted."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.world import HOUR, MARKUP, World, now
from tests.support.browser import Pages, load
from tests.support.receiver import Answer
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Chromium logs the 404 of an unknown id.
NOT_THERE = ["404"]


def search(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def confirm(page: Page, verb: str, count: int | None = None) -> None:
    """Confirm what the dialog asks."""
    dialog = page.get_by_role("dialog")
    if count is not None:
        expect(dialog.get_by_role("button", name=verb)).to_be_disabled()
        dialog.get_by_label(f"Type {count} to confirm").fill(str(count))
    dialog.get_by_role("button", name=verb, exact=True).click()


def test_an_id_or_a_business_key_leads_to_its_message(world: World, pages: Pages) -> None:
    page = pages.open(world.url, accepts=NOT_THERE)
    search(page, "unpaid-0")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"^unpaid-0\."))
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    search(page, "order-77")
    expect(page.get_by_role("link", name="order-77", exact=True)).to_be_visible()
    expect(page.locator(".body").first).to_contain_text('"order": 77')
    search(page, "batch-7")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"#/messages\?key=batch-7$"))
    search(page, "no such thing")
    expect(page.get_by_text("No message has the id or business key no such thing.")).to_be_visible()


def test_a_message_says_what_it_waits_for_and_keeps_its_digits(world: World, pages: Pages) -> None:
    page = pages.open(f"{world.url}#/messages/partners.orders-1")
    expect(page.locator(".why")).to_contain_text("the target of route partners has refused messages since")
    expect(page.locator(".timeline .next")).to_contain_text("The next probe to its target")
    expect(page.locator(".body").first).to_contain_text("9223372036854775808")
    page.goto(f"{world.url}#/messages/orders.paid-1")
    expect(page.locator(".why.delivered")).to_contain_text("it was delivered at")
    expect(page.get_by_role("button", name="Cancel …")).to_have_count(0)
    page.goto(f"{world.url}#/messages/crm.contacts-0")
    expect(page.locator(".timeline")).to_contain_text("1 failed attempt")
    expect(page.locator(".timeline .next")).to_contain_text("Attempt 2")
    expect(page.locator(".facts")).to_contain_text(["backoff 1 day"])


def test_a_message_is_moved_and_cancelled_and_says_so(world: World, pages: Pages) -> None:
    (id,) = world.schedule("story.messages", keys=["a/b?c#d"])
    page = pages.open(f"{world.url}#/messages/{quote(id, safe='')}", zone="Europe/Berlin")
    page.get_by_role("button", name="Reschedule …").click()
    page.get_by_role("radio", name="a time").check()
    field = page.get_by_label("a time (Europe/Berlin, UTC")
    dialog = page.get_by_role("dialog")
    for before, expected, offset in (
        ("2030-10-27T01:30", "2030-10-27T00:30:00.000Z", "+02:00"),
        ("2030-10-27T03:30", "2030-10-27T01:30:00.000Z", "+01:00"),
    ):
        field.fill(before)
        field.fill("2030-10-27T02:30")  # which comes twice
        expect(dialog).to_contain_text(expected)
        expect(dialog.get_by_label(f"a time (Europe/Berlin, UTC{offset})")).to_be_visible()
    field.fill("2030-01-31T08:00:00.250")
    expect(dialog).to_contain_text('{"expectDate":"2030-01-31T07:00:00.250Z"}')
    dialog.get_by_label("Reason").fill("the sale is later")
    confirm(page, "Reschedule")
    expect(dialog).to_contain_text("scheduled: due at 01/31/2030 08:00:00.250")
    assert world.get(f"/v1/messages/{id}")["dueTime"] == "2030-01-31T07:00:00.250Z"
    page.keyboard.press("Escape")
    expect(page.locator(".timeline")).to_contain_text("reschedule, by anybody: the sale is later")
    page.get_by_role("link", name="a/b?c#d").click()
    expect(page.get_by_role("link", name=id)).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Cancel …").click()
    expect(dialog).to_contain_text("Once cancelled, it is never delivered")
    confirm(page, "Cancel")
    expect(dialog).to_contain_text("1 cancelled: never delivered")
    page.keyboard.press("Escape")
    expect(page.locator(".why")).to_contain_text("it was cancelled, and never delivered, at")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_what_is_selected_is_cancelled_by_the_keyboard_and_the_count(world: World, pages: Pages) -> None:
    ids = sorted(world.schedule("story.selected", 3))
    page = pages.open(f"{world.url}#/messages?topic=story.selected&state=scheduled")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    for key in ("j", "j", "j", "k", "x", "j", "x"):
        page.keyboard.press(key)
    expect(rows.and_(page.locator("[aria-selected=true]"))).to_have_count(2)
    page.get_by_role("button", name="Cancel 2 messages …").press("Enter")
    confirm(page, "Cancel", 2)
    expect(page.get_by_role("dialog")).to_contain_text("2 cancelled: never delivered")
    page.keyboard.press("Escape")
    expect(rows).to_have_count(1)
    left = [id for id in ids if world.get(f"/v1/messages/{id}")["state"] == "scheduled"]
    page.get_by_role("checkbox", name=f"Select {left[0]}").check()
    page.get_by_role("button", name="Deliver 1 message now …").click()
    confirm(page, "Deliver now", 1)
    expect(page.get_by_role("dialog")).to_contain_text("1 scheduled: due now")


def test_a_search_goes_on_until_it_has_found_something(world: World, pages: Pages) -> None:
    begin = now() + 2 * HOUR
    due = f"dueFrom={begin}&dueTo={begin + 6 * HOUR}"
    page = pages.open(f"{world.url}#/messages?property=region:us&tags=app&{due}&limit=50")
    rows = page.locator("tbody tr")
    onward = page.get_by_role("button", name=re.compile("Show more|Continue"))
    while rows.count() < 100:
        onward.click()
    page.get_by_label("Topic").fill("nothing.*")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile("topic=nothing"))
    expect(page.get_by_text(re.compile("No message matches|None yet"))).to_be_visible()


def test_a_group_of_dead_letters_is_put_back_and_deleted_by_its_count(world: World, pages: Pages) -> None:
    world.answers["story"] = Answer(422, body=b"no such story")
    ids = world.schedule("story.dead", 5, delayTime=0)

    def dead() -> int:
        groups = world.get("/v1/dead-letters:groups", limit=1_000)["groups"]
        return sum(int(one["count"]) for one in groups if one["topic"] == "story.dead")

    eventually(lambda: dead() == 5, "all are dead letters")
    page = pages.open(f"{world.url}#/dead-letters")
    row = page.locator("tbody").first.locator("tr", has=page.get_by_role("cell", name="story.dead", exact=True))
    row.get_by_role("link").first.click()
    letters = page.locator("tbody").nth(1).locator("tr")
    expect(letters).to_have_count(5)
    page.get_by_role("checkbox", name=f"Select {ids[0]}").check()
    page.get_by_role("button", name="Discard 1 selected …").click()
    confirm(page, "Discard", 1)
    expect(page.get_by_role("dialog")).to_contain_text("1 discarded: deleted permanently")
    page.keyboard.press("Escape")
    expect(letters).to_have_count(4)
    world.take_again("story")
    expect(row.get_by_role("cell", name="4", exact=True)).to_be_visible()
    row.get_by_role("button", name="Redrive …").click()
    confirm(page, "Redrive", 4)
    expect(page.get_by_role("dialog")).to_contain_text("4 scheduled: due now")
    page.keyboard.press("Escape")
    expect(row).to_have_count(0)
    expect(letters).to_have_count(0)
    eventually(lambda: world.get(f"/v1/messages/{ids[1]}")["state"] == "delivered", "it is delivered")


def fulfill(answer: Any, route: Route) -> None:
    route.fulfill(json=answer)


def test_a_group_is_deleted_no_further_than_confirmed(world: World, pages: Pages) -> None:
    """The page gets the group as it was with three letters, or one without a reason, which matches no letter."""
    world.answers["story"] = Answer(422, body=b"no such story")
    topics = {topic: topic == "story.reasonless" for topic in ("story.reasonless", "story.grown")}
    for topic in topics:
        world.schedule(topic, 5, delayTime=0)

    def groups(topic: str) -> list[dict[str, Any]]:
        found = world.get("/v1/dead-letters:groups", limit=1_000)["groups"]
        return [one for one in found if one["topic"] == topic]

    for topic in topics:
        eventually(lambda name=topic: [one["count"] for one in groups(name)] == [5], "all are dead letters")  # type: ignore[misc]  # no default in mypy's lambda
    world.take_again("story")
    page = pages.open(f"{world.url}#/overview")
    for topic, reasonless in topics.items():
        group = {**groups(topic)[0], "count": 3, **({"reason": ""} if reasonless else {})}
        answer = {"groups": [group], "looked": 3, "complete": True, "now": group["lastTime"]}
        page.route("**/v1/dead-letters:groups*", partial(fulfill, answer))
        load(page, f"{world.url}#/dead-letters")
        row = page.locator("tbody").first.locator("tr")
        row.get_by_role("link").first.click()
        if reasonless:
            expect(page.get_by_role("main")).to_contain_text("No dead letter matches.")
            page.get_by_role("button", name="Search").click()
            assert page.evaluate("location.hash") == f"#/dead-letters?topic={topic}&group="
        else:
            expect(page.locator("tbody").nth(1).locator("tr")).to_have_count(5)
        row.get_by_role("button", name="Discard …").click()
        confirm(page, "Discard", 3)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Nothing is left to do" if reasonless else "3 discarded")
        assert ("there are more now" in dialog.inner_text()) is not reasonless
        left = world.get("/v1/dead-letters", topic=topic)["deadLetters"]
        assert len(left) == (5 if reasonless else 2)


def test_a_test_message_is_sent_followed_and_cancelled_by_the_program_of_the_page(world: World, pages: Pages) -> None:
    page = pages.open(f"{world.url}#/topics/story.test", fresh=True, accepts=["400 .*/v1/messages"])
    page.get_by_role("button", name="Send a test message").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Topic")).to_have_value("story.test")
    dialog.get_by_label("Body").fill(MARKUP)
    dialog.get_by_label("Delay from now").fill("1 h")
    dialog.get_by_text("The same call as a program").click()
    expect(dialog).to_contain_text("Complete the fields first.")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("alert")).to_contain_text("delayTime")
    dialog.get_by_label("Delay from now").fill("1h")
    expect(dialog.locator("pre")).to_contain_text('"delayTime": "1h"')
    dialog.get_by_role("button", name="Send").click()
    id = page.locator("h1 .id")
    expect(id).to_contain_text("test-")
    expect(page.locator(".body").first).to_have_text(MARKUP)
    page.get_by_role("button", name="Cancel …").click()
    dialog.get_by_text("The same call as a program").click()
    dialog.get_by_role("button", name="Copy curl").click()
    expect(dialog.get_by_role("button", name="Copied curl")).to_be_visible()
    done = subprocess.run(["sh", "-c", dialog.locator("pre").inner_text()], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout)["results"][0]["result"] == "cancelled"
    dialog.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Refresh now").click()
    expect(page.locator(".why")).to_contain_text("it was cancelled")
