"""For tests of what uses delayq: a delayq whose time the test moves, and a clock and a target for tests within one process.

    with delayq.testing.run() as dq:
        dq.client.schedule(Message(topic="orders.unpaid", id="o-1", body="x", delay_time="30m"))
        dq.advance("31m")
        assert [message.id for message in dq.delivered] == ["o-1"]

pytest has the fixture `dq`, which is the same without messages of earlier tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delayq.testing.manual_clock import START, ManualClock
    from delayq.testing.memory_target import Delivered, MemoryTarget
    from delayq.testing.registry import register_memory_target
    from delayq.testing.service import DeliveredMessage, Service, ServiceError, run

__all__ = [
    "START",
    "Delivered",
    "DeliveredMessage",
    "ManualClock",
    "MemoryTarget",
    "Service",
    "ServiceError",
    "register_memory_target",
    "run",
]

_PLACES = {
    "START": "manual_clock",
    "Delivered": "memory_target",
    "DeliveredMessage": "service",
    "ManualClock": "manual_clock",
    "MemoryTarget": "memory_target",
    "Service": "service",
    "ServiceError": "service",
    "register_memory_target": "registry",
    "run": "service",
}

if not TYPE_CHECKING:  # pytest imports this package in every environment that has delayq: it has to cost nothing

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"delayq.testing.{_PLACES[name]}"), name)
        return value
