"""Topics that are paused under load, while workers are killed or stand still: nothing of them arrives after the answer. And
limits, which all workers together keep to."""

from __future__ import annotations

import signal
from typing import Any, Final

import pytest

from tests.faults.flow import patiently
from tests.faults.house import QUEUES, WINDOW, House
from tests.faults.limits import keep_to
from tests.support.load import Load
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]

TOPICS: Final = ("sink.p", "s.p", "sink.t", "s.t")
PAUSED: Final = TOPICS[:2]
MATCH: Final = "*.p"


def counts(house: House, *topics: str) -> dict[str, int]:
    """How many messages of each topic have arrived."""
    return {topic: int(house.server_of(topic).admin.xlen(topic)) for topic in topics}


def pause(house: House, wait: str) -> dict[str, Any]:
    # The answer may take as long as it waits.
    answer = house.http.post(f"/v1/topics:pause?wait={wait}", json={"match": MATCH, "reason": "a test"}, timeout=None)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def resume(house: House) -> int:
    answer = house.http.post("/v1/topics:resume", json={"match": MATCH})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["held"])


def test_i1_under_load_nothing_of_a_paused_topic_arrives_after_the_answer_until_it_is_resumed(house: House) -> None:
    """I1: Other topics continue."""
    with Load(house.service.url, *TOPICS, latest=600) as load:
        load.wait_for(400)
        answer = pause(house, "60s")
        before = counts(house, *TOPICS)
        assert (answer["state"], answer["inFlight"]) == ("paused", 0)
        load.wait_for(600)
        eventually(lambda: counts(house, "s.t")["s.t"] > before["s.t"] + 50, "others go on")
    assert counts(house, *PAUSED) == {topic: before[topic] for topic in PAUSED}
    assert resume(house) > 0
    house.expect(load)


def test_i2_a_worker_that_is_killed_and_one_that_stands_still_across_the_pause_send_nothing_after_it(
    house: House,
) -> None:
    """I2 (kill -9 and SIGSTOP of workers across a pause): The answer is `pausing` until nothing can arrive, then
    `paused`, also when the stopped worker continues.

    I2: `pausing` names no number while somebody can still send a begun message: up to 15 s, the longest send that the
    worker has published, and 1 s. It does not matter whether the stopped worker was sending or connecting: after the
    time-out of a send nothing is written.
    """
    topics = [f"{topic[:-1]}i2.{topic[-1]}" for topic in TOPICS]
    paused = topics[: len(PAUSED)]
    killed, stands = house.workers[1:]
    with Load(house.service.url, *topics, pause=0.2, latest=1_000) as load:  # the pause takes most of a minute
        load.wait_for(400)
        with house.sink_paused():
            house.wait_until_sent_to(len(house.workers))
            stands.signal(signal.SIGSTOP)
            house.kill(killed)
        asked = pause(house, "0")
        assert (asked["state"], asked["inFlight"]) == ("pausing", None), "nobody knows what those two may send yet"
        eventually(lambda: pause(house, "60s")["state"] == "paused", "nobody can send what it had begun")
        before = counts(house, *paused)
        stands.signal(signal.SIGCONT)
        killed.start()
        patiently(house.service.owned, "every worker owns queues")
        load.wait_for(200)
    assert counts(house, *paused) == before
    resume(house)
    house.expect(load, twice=2 * QUEUES * WINDOW)


def test_i6_a_limit_is_kept_by_three_workers_one_of_which_is_killed(house: House) -> None:
    """I6 (kill -9 of one of three workers at a limit): No second has more than the rate and one burst, over all
    workers.

    I6: This holds into streams and to targets. Permits of the killed worker are lost, and nothing else.
    """
    keep_to(house, 400, 2_400)
