"""All operations of the API, in the order in which /docs shows them."""

from __future__ import annotations

from . import routes_dead_letters, routes_messages, routes_operations, routes_schedule
from .service import Operation

__all__ = ["OPERATIONS"]

OPERATIONS: tuple[Operation, ...] = (
    *routes_schedule.OPERATIONS,
    *routes_messages.OPERATIONS,
    *routes_dead_letters.OPERATIONS,
    *routes_operations.OPERATIONS,
)
