"""Redis is out of reach for the API, for a worker, or for both: callers are told, delivery catches up by itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.faults.flow import refused
from tests.faults.house import House, house
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
CALLERS = 120
HELD = 16  # of the 32 connections that the API has to Redis at most; each is held for a second only


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("outages")) as made:
        yield made


@pytest.fixture
def home(shared: House) -> Iterator[House]:
    yield shared
    shared.heal()


def test_b6_a_redis_that_says_nothing_is_told_within_the_time_out_and_found_again(home: House) -> None:
    ids = home.schedule("sink.b6", 100, delay=500) + home.schedule("sink.b6", 100, delay=2_000)
    with home.redis_paused():
        told = [refused(home.service.schedule("sink.b6", delayTime="1s", body=str(i))) for i in range(2)]
        assert all("repeat with the same id" in one["detail"] for one in told)
        refused(home.http.delete(f"/v1/messages/{ids[0]}"))
        refused(home.http.get("/readyz"))
        assert home.http.get("/livez").status_code == 200
    eventually(home.service.ready, "the API is ready again")
    for i, one in enumerate(told):  # what Redis found in its sockets when it went on was done
        again = home.service.schedule("sink.b6", delayTime="1s", body=str(i), id=one["id"])
        assert again.status_code in (200, 201)
        ids.append(one["id"])
    # The cancel that nobody was told of may have been done.
    home.sink.expect("sink.b6", ids, maybe=ids[:1])
    home.wait_until_done()
    home.sink.expect("sink.b6", ids, maybe=ids[:1])


def test_b6_a_link_that_swallows_everything_delays_delivery_and_doubles_nothing(home: House) -> None:
    ids = home.schedule("sink.b6.link", 50, delay=300)
    home.to_worker.black_hole()
    ids += home.schedule("sink.b6.link", 50)
    streamed = home.schedule("b6.link", 50)
    seen = len(home.service.workers[0].said())
    eventually(lambda: "redis_trouble" in home.service.workers[0].said()[seen:], "the worker says so")
    home.to_worker.heal()
    home.sink.expect("sink.b6.link", ids)
    home.sink.expect("b6.link", streamed, at=home.server)
    home.wait_until_done()
    assert len(home.sink.arrivals("sink.b6.link")) == 100


def test_b7_a_killed_subscription_loses_no_message(home: House) -> None:
    ids = []
    for _ in range(10):
        home.server.admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        ids += home.schedule("sink.b7", 5)
        home.sink.expect("sink.b7", ids)
    assert "wakes_lost" in home.service.workers[0].said()


def test_b7_a_worker_that_never_hears_a_wake_delivers_by_its_own_looks(home: House) -> None:
    home.server.admin.execute_command(
        "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "&*", "+@all", "-subscribe", "-psubscribe", "-ssubscribe"
    )
    worker = home.service.workers[0]
    url = worker.settings["redis_url"]
    worker.settings["redis_url"] = url.replace("redis://", "redis://deaf:any@")
    try:
        worker.stop()
        worker.start()
        eventually(lambda: "wakes_lost" in worker.said()[-3_000:], "it cannot subscribe")
        ids: list[str] = []
        for delay in (0, 0, 300, 900):
            ids += home.schedule("sink.b7.deaf", 20, delay=delay)
            home.sink.expect("sink.b7.deaf", ids)
    finally:
        worker.settings["redis_url"] = url
        worker.stop()
        worker.start()


def test_b8_more_callers_than_connections_are_all_answered_and_delivery_has_its_own(home: House) -> None:
    ids = home.schedule("sink.b8", 100, delay=500)
    home.to_api.black_hole()  # whoever has a connection keeps it until the time-out

    def call(number: int) -> httpx2.Response:
        return httpx2.get(f"{home.service.url}/v1/messages/none-{number}", timeout=30)

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = [pool.submit(call, number) for number in range(CALLERS)]
        eventually(lambda: home.to_api.connections >= HELD, "connections are held")
        assert httpx2.get(f"{home.service.url}/livez", timeout=10).status_code == 200
    for answer in answers:
        refused(answer.result())
    home.sink.expect("sink.b8", ids)
    home.to_api.heal()
    eventually(home.service.ready, "the API is ready again")
    assert home.http.get("/v1/messages/none").status_code == 404


def test_b10_an_api_that_is_cut_off_says_so_and_delivery_goes_on(home: House) -> None:
    ids = home.schedule("sink.b10", 100, delay=300)
    far = home.schedule("sink.b10", 1, delay=600_000)
    home.to_api.refuse()
    told = refused(home.service.schedule("sink.b10", delayTime=0, body="b"))
    refused(home.http.delete(f"/v1/messages/{far[0]}"))
    refused(home.http.get("/readyz"))
    home.sink.expect("sink.b10", ids)
    home.to_api.heal()
    eventually(home.service.ready, "the API is ready again")
    assert home.http.delete(f"/v1/messages/{far[0]}").json()["result"] == "cancelled"
    assert home.service.schedule("sink.b10", delayTime=0, body="b", id=told["id"]).status_code == 201
    home.sink.expect("sink.b10", [*ids, *far, told["id"]], cancelled=far)


def test_b13_over_a_narrow_line_messages_come_late_each_once_and_other_queues_with_them(home: House) -> None:
    large = home.schedule("sink.b13", 30, delay=1_000, body="x" * 4_000)
    small = home.schedule("sink.b13", 60, delay=1_000)
    seen = len(home.service.workers[0].said())
    home.to_worker.throttle(12_500)  # 100 kbit/s
    home.sink.expect("sink.b13", [*large, *small], seconds=100)
    assert "pull_job_stuck" not in home.service.workers[0].said()[seen:]
    home.to_worker.heal()
    home.wait_until_done()
    home.sink.expect("sink.b13", [*large, *small])
