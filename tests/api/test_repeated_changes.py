"""A change whose reply was lost is answered again as it was, though the message has been delivered meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.testing import MemoryTarget
from tests.api.conftest import in_process
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

HOUR = 3_600_000


@pytest.mark.parametrize("change", ["a delay", "now"])
async def test_a_change_that_is_repeated_after_the_delivery_gets_the_answer_of_the_first(
    valkey: ServerUnderTest, change: str
) -> None:
    target = MemoryTarget()
    settings = settings_for(valkey.url, target)
    with RunningNode(settings):
        async with in_process(settings) as api:

            async def ask() -> Any:
                if change == "now":
                    return await api.post("/v1/messages/m:deliverNow", json={})
                return await api.patch("/v1/messages/m", json={"delayTime": 1})

            await api.post("/v1/messages", json={"topic": "m.t", "id": "m", "delayTime": HOUR})
            first = await ask()
            target.wait_for_ids(["m"], PATIENCE)
            again = await ask()
            assert (first.status_code, again.status_code) == (200, 200)
            assert again.json() == first.json()
            assert (await api.patch("/v1/messages/m", json={"delayTime": 2})).status_code == 409, "another call"
