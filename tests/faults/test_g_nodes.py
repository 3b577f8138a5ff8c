"""A wrong clock of one of several workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.flow import batch, ids_of, now, patiently
from tests.faults.house import House, readiness
from tests.support.bent_clock import BentClock

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]

HOUR = 3_600_000


def deliver(house: House, name: str, ahead: int) -> None:
    """Messages of both paths, due from `ahead` ms on, come once and none is early."""
    start, topics = now() + ahead, (f"sink.{name}", name)
    dues = {f"{topic}-{n}": start + 10 * n for topic in topics for n in range(100)}
    rows = [{"topic": id.rpartition("-")[0], "id": id, "expectDate": due} for id, due in dues.items()]
    ids_of(batch(house.service, rows))
    house.wait_until_done()
    found = house.arrived(*topics)
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(dues, 1)
    assert [id for id in found if found[id][0] < dues[id]] == []


def test_g3_an_owner_an_hour_ahead_is_never_early_and_one_an_hour_behind_leaves_its_queues(
    house: House, tmp_path: Path
) -> None:
    """G3 (owner clock ± 1 h): Nothing is early.

    A worker 2 s or more behind complains, and after 5 s gives its queues to others.

    G3: A clock ahead changes nothing. A worker that is 2 s or more behind reports it (`clock_skew`, `/readyz`). After
    5 s its queues go to workers with right clocks, until its own has been right for 30 s. A lone worker keeps them
    and is late.
    """
    worker, clock = house.workers[0], BentClock(tmp_path)

    def complains(side: str) -> bool:
        status, text = readiness(worker)
        return status == 503 and side in text

    assert worker.stop() == 0
    worker.environment = dict(clock.environment)
    try:
        clock.set(HOUR)
        worker.start()
        patiently(house.service.owned, "it has queues")
        deliver(house, "g3.ahead", 1_500)
        patiently(lambda: complains("ahead of"), "it says that its clock is ahead")
        assert house.service.owned()  # it does no harm

        clock.set(-HOUR)
        patiently(lambda: house.service.queues() and not house.of(worker), "the others have all queues")
        deliver(house, "g3.behind", 0)
        assert complains("behind")
        assert '"clock_skew"' in house.said(worker)
        before = house.service.epochs()
        deliver(house, "g3.after", 2_000)
        assert house.service.epochs() == before  # nothing goes to and fro
        worker.stop()
    finally:
        worker.environment = {}
        worker.kill()
