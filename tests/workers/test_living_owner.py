"""An owner that lives on forgets nothing for good, whatever befalls it: no restart, no new claim."""

from __future__ import annotations

import os

import pytest

from tests.support.servers import ServerUnderTest
from tests.workers.living import live

SEEDS = int(os.environ.get("DELAYQ_TEST_SEEDS", "50"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_ends_and_in_order_with_one_owner_that_lives_on(valkey: ServerUnderTest, seed: int) -> None:
    live(valkey.url, seed)
