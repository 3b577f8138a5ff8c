"""delayq delivers a message to a topic at the millisecond that you choose."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delayq.base.errors import (
        ConfigError,
        Conflict,
        DelayqError,
        InvalidMessage,
        LayoutMismatch,
        MissingExtra,
        NotAllowed,
        NotDevelopment,
        NotDone,
        NotDurable,
        NotReady,
        OtherFilter,
        PastDue,
        PoliciesChanged,
        StillDue,
        StoreError,
        StoreFull,
        StoreRefused,
        StoreUnavailable,
        TooManyPending,
        TooManyPolicies,
    )
    from delayq.base.times import parse_duration, parse_instant
    from delayq.client.async_client import AsyncClient
    from delayq.client.changing.messages import Cancelled, Rescheduled
    from delayq.client.client import Client
    from delayq.client.consuming.entries import Leased
    from delayq.client.scheduling.schedule import Scheduled
    from delayq.config import Settings
    from delayq.connecting import connect, connect_async
    from delayq.domain.message import Message, State
    from delayq.domain.policies import Policy
    from delayq.store.commands.searching import Filter

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "ConfigError",
    "Conflict",
    "DelayqError",
    "Filter",
    "InvalidMessage",
    "LayoutMismatch",
    "Leased",
    "Message",
    "MissingExtra",
    "NotAllowed",
    "NotDevelopment",
    "NotDone",
    "NotDurable",
    "NotReady",
    "OtherFilter",
    "PastDue",
    "PoliciesChanged",
    "Policy",
    "Rescheduled",
    "Scheduled",
    "Settings",
    "State",
    "StillDue",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "TooManyPending",
    "TooManyPolicies",
    "connect",
    "connect_async",
    "parse_duration",
    "parse_instant",
]

#: The module of each name. A module is imported when its name is first used, because modules that use Redis take longer
#: to import than many commands take to run.
_PLACES = {
    "AsyncClient": "delayq.client.async_client",
    "Cancelled": "delayq.client.changing.messages",
    "Client": "delayq.client.client",
    "ConfigError": "delayq.base.errors",
    "Conflict": "delayq.base.errors",
    "DelayqError": "delayq.base.errors",
    "Filter": "delayq.store.commands.searching",
    "InvalidMessage": "delayq.base.errors",
    "LayoutMismatch": "delayq.base.errors",
    "Leased": "delayq.client.consuming.entries",
    "Message": "delayq.domain.message",
    "MissingExtra": "delayq.base.errors",
    "NotAllowed": "delayq.base.errors",
    "NotDevelopment": "delayq.base.errors",
    "NotDone": "delayq.base.errors",
    "NotDurable": "delayq.base.errors",
    "NotReady": "delayq.base.errors",
    "OtherFilter": "delayq.base.errors",
    "PastDue": "delayq.base.errors",
    "PoliciesChanged": "delayq.base.errors",
    "Policy": "delayq.domain.policies",
    "Rescheduled": "delayq.client.changing.messages",
    "Scheduled": "delayq.client.scheduling.schedule",
    "Settings": "delayq.config",
    "State": "delayq.domain.message",
    "StillDue": "delayq.base.errors",
    "StoreError": "delayq.base.errors",
    "StoreFull": "delayq.base.errors",
    "StoreRefused": "delayq.base.errors",
    "StoreUnavailable": "delayq.base.errors",
    "TooManyPending": "delayq.base.errors",
    "TooManyPolicies": "delayq.base.errors",
    "connect": "delayq.connecting",
    "connect_async": "delayq.connecting",
    "parse_duration": "delayq.base.times",
    "parse_instant": "delayq.base.times",
}


if not TYPE_CHECKING:  # type checkers know the names from above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES})
