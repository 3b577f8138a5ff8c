"""What a plan is: an operation without I/O, which yields commands and is sent their answers."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

import msgspec

from delayq.message import Limits
from delayq.routes import Routes
from delayq.store.commands import Command, Retention
from delayq.store.keys import Layouts

__all__ = ["Context", "Plan"]

T = TypeVar("T")

#: A plan yields commands and is sent their answers (a StoreError in the place of a failed one).
Plan = Generator[Iterable[Command[Any]], list[Any], T]


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What operations need to know: the layouts, limits, how long ended ids are remembered, the routes."""

    layouts: Layouts
    limits: Limits = Limits()
    retention: Retention = Retention()
    routes: Routes
