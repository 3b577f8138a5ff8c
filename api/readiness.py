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
        known = context.layouts.known
        meta = await client.store.run(commands.layout(known[-1].queues))
        lacking = checks.complaints(await client.store.run(checks.server()), min_replicas)
    except (ConfigError, LayoutMismatch, StoreError) as error:
        return [str(error)]
    another = not set(known) & set(meta.layouts) and meta.layouts[-1].first <= known[-1].first
    if another or meta.version != LAYOUT_VERSION:
        lacking.append(
            f"the Redis now has {meta.queues} queues (layout version {meta.version}), this process began with "
            f"{known[-1].queues} (version {LAYOUT_VERSION}): restart it"
        )
    else:
        context.layouts.take(meta.layouts)
    return lacking
