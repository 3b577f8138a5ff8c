"""What operators use the console for, from the question to the answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.console.world import World
from tests.support.browser import Pages
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]


@pytest.fixture
def endpoint(world: World) -> Iterator[World]:
    """The endpoint of topics that begin with 'story.' takes everything again when the test is over."""
    yield world
    world.answers.pop("story", None)


def test_a_target_that_takes_nothing_is_named_and_two_clicks_lead_to_why(pages: Pages, endpoint: World) -> None:
    page = pages.open(f"{endpoint.url}#/overview")
    main = page.get_by_role("main")
    expect(main).to_contain_text("the target of route partners")
    expect(main).not_to_contain_text("the target of route story")
    endpoint.stop_taking("story")
    endpoint.schedule("story.stopped", 4, delayTime=0)
    sentence = main.get_by_role("listitem").filter(has_text="the target of route story has refused messages")
    expect(sentence).to_contain_text("answered 503: we are closed")
    sentence.get_by_role("link", name="Parked messages").click()
    main.locator("tbody").get_by_role("link").first.click()
    expect(main).to_contain_text("has refused messages since")
    expect(main).to_contain_text("The next probe to its target")
    endpoint.take_again("story")
    page.get_by_role("link", name="Overview").click()
    expect(main).to_contain_text("the target of route partners")
    expect(sentence).to_have_count(0)


def test_a_held_message_is_cancelled_for_certain_and_the_others_are_delivered(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/topics/story-held")
    page.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("a story")
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog.get_by_role("status")).to_contain_text("no message may arrive")
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.get_by_label("Paused:")).to_contain_text("story-held")
    away, stays = world.schedule("story-held", 2, delayTime=0)
    page.goto(f"{world.url}#/messages/{away}")
    expect(page.get_by_role("main")).to_contain_text("held")
    page.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog.get_by_role("status")).to_contain_text("cancelled: never delivered")
    dialog.get_by_role("button", name="Close").last.click()
    page.goto(f"{world.url}#/topics/story-held")
    page.get_by_role("button", name="Resume").click()
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog.get_by_role("status")).to_be_visible()
    states = {away: "cancelled", stays: "delivered"}
    eventually(
        lambda: {id: world.get(f"/v1/messages/{id}")["state"] for id in states} == states, "the other one is delivered"
    )
