"""`AsyncClient`: the calls for asyncio, where those that are made at the same time go together."""

from __future__ import annotations

from functools import cached_property

from delayq.client.async_calls import AsyncCalls
from delayq.client.group_commit import GroupCommit
from delayq.client.schedule import Encoded, Outcome

__all__ = ["AsyncClient"]


class AsyncClient(AsyncCalls):
    """`Client` for asyncio: the same operations, to be awaited on one event loop.

    Calls of `schedule` that are made at the same time share their way to Redis, and each is told what became of its own
    message; one that is alone does not wait. Where too much waits, or for too long, they raise NotDone.
    """

    @cached_property
    def group(self) -> GroupCommit:
        """What gathers them."""
        return GroupCommit(self._send, self._setup.settings.redis_timeout / 1000)

    async def _send_one(self, given: Encoded) -> Outcome:
        return await self.group.add(given)

    async def close(self) -> None:
        """Let the calls of `schedule` that were made end, then close the connections."""
        await self.group.close()
        await super().close()
