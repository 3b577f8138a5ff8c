"""What a Redis must have before delayq may promise anything."""

from __future__ import annotations

from typing import Final

from delayq import AsyncClient, ConfigError, LayoutMismatch, StoreError
from delayq.care.audit import Audit
from delayq.clock import Clock, SystemClock
from delayq.config import Settings
from delayq.store import checks, commands
from delayq.store.commands import LAYOUT_VERSION

__all__ = ["Readiness"]

#: ms between two looks at whether all messages are accounted for, however often anybody asks.
AUDIT_EVERY: Final = 2_000


class Readiness:
    """Whether messages can be taken and kept."""

    def __init__(self, client: AsyncClient, settings: Settings, clock: Clock | None = None) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock if clock is not None else SystemClock()
        self._audit = Audit()
        self._audited_at: int | None = None
        self._lost: list[str] = []

    async def missing(self) -> list[str]:
        """What this Redis lacks, in words; nothing when all is well."""
        store = self._client.store
        try:
            context = await self._client.reading()
            known = context.layouts.known
            meta = await store.run(commands.meta())
            server = checks.told(await store.run_many(checks.questions(self._settings.fsync)))
            lacking = checks.complaints(server, self._settings.min_replicas, self._settings.fsync)
            lacking += await self._unaccounted()
        except (ConfigError, LayoutMismatch, StoreError) as error:
            return [str(error)]
        if meta is None:  # nobody has used it yet, or all was deleted, which the audit tells
            return lacking
        another = not set(known) & set(meta.layouts) and meta.layouts[-1].first <= known[-1].first
        if another or meta.version != LAYOUT_VERSION:
            lacking.append(
                f"the Redis now has {meta.queues} queues (layout version {meta.version}), this process began with "
                f"{known[-1].queues} (version {LAYOUT_VERSION}): restart it"
            )
        else:
            context.layouts.take(meta.layouts)
        return lacking

    async def _unaccounted(self) -> list[str]:
        now = self._clock.monotonic()
        if self._audited_at is None or now - self._audited_at >= AUDIT_EVERY:
            self._lost = list(self._audit.look(await self._client.stats()).lost.values())
            self._audited_at = now
        return self._lost
