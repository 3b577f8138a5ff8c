"""For tests of what uses delayq: a clock that stands still until it is told to go on, and a target in memory.

A worker in the same process delivers into the target::

    target = MemoryTarget()
    settings = load_settings(routes=json.dumps([{"name": "memory", "target": register_memory_target(target)}]))
    ...
    target.wait_for(1, timeout=5)
    assert [delivery.id for delivery in target.deliveries] == ["order-1"]
"""

from __future__ import annotations

from delayq.testing.manual_clock import START, ManualClock
from delayq.testing.memory_target import Delivered, MemoryTarget
from delayq.testing.registry import register_memory_target

__all__ = ["START", "Delivered", "ManualClock", "MemoryTarget", "register_memory_target"]
