"""A connection that ended while nobody used it: the next call goes on with a new one, whatever event loop it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from delayq.store import commands
from delayq.store.connect.async_store import AsyncStore
from tests.support.proxy import FaultProxy

QUEUES = 4


async def _ask_before_and_after_a_reset(proxy: FaultProxy) -> int:
    store = AsyncStore(proxy.url)
    try:
        await store.run(commands.layout(QUEUES))
        proxy.reset()
        await asyncio.sleep(0.2)  # so that the loop has seen it
        return (await store.run(commands.layout(QUEUES))).queues
    finally:
        await store.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_reset_while_it_was_idle_is_replaced(
    run: Callable[[Coroutine[Any, Any, int]], int], proxy: FaultProxy
) -> None:
    assert run(_ask_before_and_after_a_reset(proxy)) == QUEUES
