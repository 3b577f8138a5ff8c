"""What a Redis must have before delayq may promise anything."""

from __future__ import annotations

from delayq import AsyncClient, ConfigError, LayoutMismatch, StoreError
from delayq.store import checks, commands
from delayq.store.commands import LAYOUT_VERSION

__all__ = ["missing"]


async def missing(client: AsyncClient, min_replicas: int = 0) -> list[str]:
    """What this Redis lacks, in words; nothing when all is well."""
    try:
        context = await client.context()
        meta = await client.store.run(commands.layout(context.layout.queues))
        lacking = checks.complaints(await client.store.run(checks.server()), min_replicas)
    except (ConfigError, LayoutMismatch, StoreError) as error:
        return [str(error)]
    if meta.queues != context.layout.queues or meta.version != LAYOUT_VERSION:
        lacking.append(
            f"the Redis now has {meta.queues} queues (layout version {meta.version}), this process began with "
            f"{context.layout.queues} (version {LAYOUT_VERSION}): restart it"
        )
    return lacking
