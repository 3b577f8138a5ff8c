"""What docker-compose.yml starts without a profile, and a backfill: its commands run without Docker."""

from __future__ import annotations

import json

import pytest

from delayq.spark.session import check_java
from tests.deploy.stack import Stack
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def test_a_message_is_scheduled_at_one_api_and_delivered_as_the_other_knows(stack: Stack) -> None:
    stack.deliver("orders.unpaid", "unpaid-42")


def test_the_three_workers_share_the_queues_by_the_ensemble(stack: Stack) -> None:
    def shared() -> bool:
        ran = stack.containers["worker"][0].run("python", "-m", "coordinator", "--once", "--json")
        if ran.returncode:  # on a busy machine it may not have had its answers in time
            return False
        seen = json.loads(ran.stdout)
        counts = sorted(len(node["queues"]) for node in seen["nodes"])
        return counts == [5, 5, 6] and not seen["unowned"]

    eventually(shared, "all queues are shared")


def test_the_doctor_finds_nothing_to_complain_of_but_an_open_redis(stack: Stack) -> None:
    ran = stack.containers["api"][0].run("delayq", "doctor", "--json")
    assert ran.returncode == 0, ran.stdout
    assert {one["result"] for one in json.loads(ran.stdout)["checks"]} <= {"ok", "warn"}


def test_the_example_of_a_backfill_schedules_its_table(stack: Stack) -> None:
    try:
        check_java()
    except Exception as error:
        pytest.skip(str(error))
    said = stack.do("backfill", "--json", "--master", "local[1]").said()
    assert '"scheduled":2' in said.replace(" ", "")


def test_all_stop_in_order_and_come_back_with_what_they_had(stack: Stack) -> None:
    with stack.api(0) as api:
        kept = {"topic": "orders", "body": "kept", "delayTime": "1h", "id": "kept"}
        assert api.post("/v1/messages", json=kept).status_code == 201
    again = [(name, stack.containers[name][0]) for name in ("worker", "api", "redis")]
    assert [one.stop() for _, one in again] == [0, 0, 0]
    for name, one in reversed(again):
        one.start(*stack.more(name, one))
        one.wait()
    with stack.api(0) as api:
        assert api.get("/v1/messages/kept").status_code == 200
