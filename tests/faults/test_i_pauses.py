"""Topics that are paused under load, while workers are killed or stand still: nothing of them arrives after the answer. And
limits, which all workers together keep to."""

from __future__ import annotations

import signal
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import pytest

from delayq import Client, Message
from testbed.zookeeper import ZooKeeperServer
from tests.faults.house import House, house, restarted
from tests.support.load import Load
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

QUEUES, WINDOW = 8, 200
TOPICS: Final = ("sink.p", "s.p", "sink.t", "s.t")
PAUSED: Final = TOPICS[:2]
MATCH: Final = "*.p"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[House]:
    options: dict[str, Any] = {
        "zookeeper": zookeeper.hosts, "zookeeper_root": "/faults-i", "session_timeout": "2s", "send_timeout": "1s",
        "queues": str(QUEUES), "window": str(WINDOW),
    }  # fmt: skip
    with house(tmp_path_factory.mktemp("pauses"), workers=3, **options) as home:
        yield home


def arrived(home: House, topic: str) -> int:
    """How many messages have arrived at the sink, or in a stream."""
    server = home.sink.server if topic.startswith("sink.") else home.server
    return int(server.admin.xlen(topic))


def arrivals(home: House, topic: str, behind: int) -> list[int]:
    """When each message arrived, but for the first ones, by the clock of the server that took it."""
    server = home.sink.server if topic.startswith("sink.") else home.server
    return [int(id.partition(b"-")[0]) for id, _ in server.admin.xrange(topic)][behind:]


def pause(home: House, wait: str) -> dict[str, Any]:
    answer = home.http.post(f"/v1/topics:pause?wait={wait}", json={"match": MATCH, "reason": "a test"}, timeout=90)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def resume(home: House) -> int:
    answer = home.http.post("/v1/topics:resume", json={"match": MATCH}, timeout=30)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["held"])


def test_i1_under_load_nothing_of_a_paused_topic_arrives_after_the_answer_until_it_is_resumed(home: House) -> None:
    # Nothing is broken here, so nothing comes twice, however long a worker or the sink gets no processor.
    with restarted(home.service, session_timeout="20s", send_timeout="30s"):
        with Load(home.service.url, *TOPICS, batch=20, latest=600) as load:
            load.wait_for(1_000)
            answer = pause(home, "10s")
            before = {topic: arrived(home, topic) for topic in TOPICS}
            assert (answer["state"], answer["inFlight"]) == ("paused", 0)
            load.wait_for(2_000)
            eventually(lambda: arrived(home, "s.t") > before["s.t"] + 200, "others go on")
        assert {topic: arrived(home, topic) for topic in PAUSED} == {topic: before[topic] for topic in PAUSED}
        assert resume(home) > 0
        home.expect(load)
        home.wait_until_done()


def held(home: House, topic: str) -> int:
    """How many messages of a paused topic are held, by what the API says; -1 while it cannot say."""
    answer = home.http.get(f"/v1/topics/{topic}")
    return int(answer.json()["held"]) if answer.status_code == 200 else -1


@pytest.mark.parametrize("connecting", [False, True], ids=["while-they-send", "while-they-connect"])
def test_i2_a_worker_that_is_killed_and_one_that_stands_still_across_the_pause_send_nothing_after_it(
    home: House, connecting: bool
) -> None:
    topics = [f"{topic[:-1]}{connecting}.{topic[-1]}".lower() for topic in TOPICS]
    paused = topics[: len(PAUSED)]
    killed, stands = home.service.workers[1:]
    with Load(home.service.url, *topics, batch=125, pause=0.1, latest=1_000) as load:
        load.wait_for(5_000)
        if connecting:
            home.sink.server.admin.client_kill_filter(_type="normal", skipme=True)
        with home.sink_paused() if connecting else nullcontext():
            if connecting:  # to a sink that does not answer
                home.wait_until_sent_to(len(home.service.workers))
            stands.signal(signal.SIGSTOP)
            killed.kill()
        asked = pause(home, "0")
        assert (asked["state"], asked["inFlight"]) == ("pausing", None), "nobody knows what those two may send yet"
        assert pause(home, "60s")["state"] == "paused"
        before = {topic: arrived(home, topic) for topic in paused}
        stands.signal(signal.SIGCONT)
        killed.start()
        eventually(home.service.owned, "every worker owns queues")
        load.wait_for(5_000)
    assert {topic: arrived(home, topic) for topic in paused} == before
    resume(home)
    home.expect(load, twice=2 * QUEUES * WINDOW)
    home.wait_until_done()


def test_i3_what_an_api_had_begun_to_pause_when_it_was_killed_workers_bring_to_all_queues(home: House) -> None:
    before = arrived(home, "s.p")
    home.to_api.drop_reply("set_policies", times=2)
    answer = home.http.post("/v1/topics:pause", json={"match": MATCH, "reason": "a test"}, timeout=30)
    assert answer.status_code == 503, answer.text
    home.service.api.kill()
    home.to_api.heal()
    brought_by_workers(home, before)


def test_i3_what_an_api_had_brought_to_some_queues_when_it_was_killed_workers_bring_to_the_others(home: House) -> None:
    def cut_in_the_middle(_: object) -> bool:
        home.to_api.cut_after(1_000)
        return False

    before = arrived(home, "s.p")
    home.to_api.drop_reply("apply_policies", when=cut_in_the_middle)
    for worker in home.service.workers:
        worker.signal(signal.SIGSTOP)  # so that they bring it nowhere yet
    answer = home.http.post("/v1/topics:pause", json={"match": MATCH, "reason": "a test"}, timeout=30)
    assert answer.status_code == 503, answer.text
    home.service.api.kill()
    home.to_api.heal()
    assert 0 < versions(home).count(wanted(home)) < QUEUES
    for worker in home.service.workers:
        worker.signal(signal.SIGCONT)
    brought_by_workers(home, before)


def wanted(home: House) -> Any:
    """The version of the policies."""
    return home.server.admin.hget("delayq:policies:{delayq:meta}", "version")


def versions(home: House) -> list[Any]:
    """The version that each queue has."""
    return [home.server.admin.hget(f"delayq:{{{queue}}}:state", "policies") for queue in range(QUEUES)]


def brought_by_workers(home: House, before: int) -> None:
    """While there is no API: the pause is in every queue, and holds; then it ends."""
    eventually(lambda: set(versions(home)) == {wanted(home)}, "all queues have it")
    home.service.api.start()
    home.heal()
    home.schedule("s.p", 40)
    eventually(lambda: held(home, "s.p") == 40, "all is held")
    assert arrived(home, "s.p") == before
    again = pause(home, "10s")
    assert (again["state"], again["changed"]) == ("paused", False)
    assert resume(home) == 40
    home.wait_until_done()
    assert arrived(home, "s.p") == before + 40


def test_i7_what_is_cancelled_for_certain_while_it_is_held_never_arrives_and_all_else_does(home: House) -> None:
    begun = int(time.time() * 1000)
    ids = [f"held-{n}" for n in range(6_000)]
    dues = {id: begun + 1_000 + n for n, id in enumerate(ids)}
    killed = home.service.workers[2]
    with Client(home.server.url) as client:
        outcomes = client.schedule_many(
            [Message(id=id, topic=PAUSED[n % 2], expect_date=dues[id]) for n, id in enumerate(ids)]
        )
        assert all(getattr(one, "created", False) for one in outcomes)
        eventually(lambda: arrived_ids(home) & {*ids}, "some have arrived")
        assert pause(home, "10s")["state"] == "paused"
        paused_at = int(time.time() * 1000)
        killed.kill()
        eventually(lambda: time.time() * 1000 > dues[ids[-1]], "all are due")
        results = {one.id: one.result for one in client.cancel_many(ids[::2])}
    killed.start()
    resume(home)
    home.wait_until_done()
    seen = arrived_ids(home)
    certain = {id for id, result in results.items() if result == "cancelled"}
    assert certain >= {id for id in results if dues[id] > paused_at}
    assert not certain & seen, "cancelled for certain, and it has arrived"
    assert {*ids} - results.keys() <= seen


def arrived_ids(home: House) -> set[str]:
    """The ids of what has arrived of the paused topics."""
    servers = {topic: home.sink.server if topic.startswith("sink.") else home.server for topic in PAUSED}
    return {entry[b"id"].decode() for topic, server in servers.items() for _, entry in server.admin.xrange(topic)}


def test_i6_a_limit_is_kept_by_three_workers_one_of_which_is_killed(home: House) -> None:
    keep_to(home, 400, 2_400)


@pytest.mark.timeout(1_500)
def test_i6_a_million_due_in_one_ms_go_by_a_limit(home: House) -> None:
    keep_to(home, 5_000, 1_000_000)


def keep_to(home: House, rate: int, count: int) -> None:
    """Of two topics that share a rate so many messages fall due in one ms, and a worker is killed in the middle."""
    topics = ("sink.l", "s.l")
    before = {topic: arrived(home, topic) for topic in topics}
    policy = {"match": "*.l", "rate": rate, "per": "policy"}
    assert home.http.put("/v1/policies/slow", json=policy, timeout=30).status_code == 200
    due = int(time.time() * 1000) + 2_000 + count // 20
    with Client(home.server.url) as client:
        for start in range(0, count, 10_000):
            some = range(start, min(start + 10_000, count))
            client.schedule_many(
                [Message(id=f"limited-{count}-{n}", topic=topics[n % 2], expect_date=due) for n in some]
            )

    def done() -> int:
        return sum(arrived(home, topic) - before[topic] for topic in topics)

    killed = home.service.workers[2]
    eventually(lambda: done() > rate, "it has begun")
    killed.kill()
    # No figure of speed: where trips take long, a limit is slower and never faster.
    eventually(lambda: done() >= count, "all have arrived")
    killed.start()
    times = sorted(at for topic in topics for at in arrivals(home, topic, before[topic]))
    assert times[0] >= due
    busiest = max(bisect_right(times, first + 1_000) - place for place, first in enumerate(times))
    assert busiest <= 2 * rate, "in a second there are no more than the rate and one burst"
    assert home.http.delete("/v1/policies/slow", timeout=30).status_code == 200
    home.wait_until_done()
