"""The operations of the API, one file for each group, in the order of /docs."""

from __future__ import annotations

from api.routes import (
    audit,
    consuming,
    dead_letters,
    development,
    groups,
    handing_back,
    messages,
    operators,
    policies,
    schedule,
    search,
    topics,
)
from api.service import Operation

__all__ = ["OPERATIONS"]

OPERATIONS: tuple[Operation, ...] = (
    *schedule.OPERATIONS,
    *messages.OPERATIONS,
    *search.OPERATIONS,
    *dead_letters.OPERATIONS,
    *topics.OPERATIONS,
    *policies.OPERATIONS,
    *consuming.OPERATIONS,
    *groups.OPERATIONS,
    *handing_back.OPERATIONS,
    *audit.OPERATIONS,
    *operators.OPERATIONS,
    *development.OPERATIONS,
)
