"""An owner that lives on forgets nothing for good, whatever befalls it: no restart, no new claim."""

from __future__ import annotations

import os

import pytest

from delayq.store.store import Store
from tests.support.servers import ServerUnderTest
from tests.workers.living import Life

FIRST, SEEDS = (int(os.environ.get(f"DELAYQ_TEST_{name}", default)) for name, default in (("SEED", 0), ("SEEDS", 50)))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
@pytest.mark.parametrize("lane", [16, 3], ids=["long-lanes", "short-lanes"])
def test_everything_ends_and_in_order_with_one_owner_that_lives_on(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, seed: int, lane: int
) -> None:
    monkeypatch.setattr("workers.lanes.MOST", lane)
    monkeypatch.setattr("workers.lanes.LOW", lane // 4)
    store = Store(valkey.url)
    try:
        Life(store, seed).play()
    finally:
        store.close()
