"""What operators use the console for, from the question to the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from testbed.zookeeper import ZooKeeperServer
from tests.console.world import World, small_world
from tests.support.browser import Pages, settle
from tests.support.timeouts import SESSION_TIMEOUT
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


def test_the_forecast_is_what_then_arrives(pages: Pages, own_world: World) -> None:
    page = pages.open(f"{own_world.url}#/timeline?range=15m")
    settle(page)
    # Due late enough that none is delivered before a slow page counts it.
    ids = own_world.schedule("story.forecast", 40, delayTime=600_000)
    total = page.get_by_text("In this range", exact=True).locator("xpath=..")
    page.get_by_role("button", name="Refresh now").click()
    expect(total).to_contain_text("40")
    results = own_world.service.http.post("/v1/messages:deliverNow", json={"ids": ids}).json()["results"]
    assert {one["status"] for one in results} == {200}, results
    eventually(lambda: len(own_world.endpoint.requests) == 40, "all have arrived")
    page.get_by_role("button", name="Refresh now").click()
    expect(total).not_to_contain_text("40")


def test_the_queues_of_a_worker_that_stops_go_to_the_other(
    pages: Pages, zookeeper: ZooKeeperServer, zookeeper_root: str, tmp_path: Path, program: str
) -> None:
    settings = {"zookeeper": zookeeper.hosts, "zookeeper_root": zookeeper_root, "session_timeout": f"{SESSION_TIMEOUT}"}
    with small_world(tmp_path, workers=2, **settings) as world:
        page = pages.open(f"{world.url}#/queues")
        queues = page.get_by_role("region", name="Queues").locator("tbody tr")
        expect(queues.filter(has_text="w1").first).to_be_visible()
        world.service.workers[1].stop()
        expect(queues.filter(has_text="w0")).to_have_count(16)
        expect(queues.filter(has_text="w1")).to_have_count(0)
        page.close()  # before its API stops
