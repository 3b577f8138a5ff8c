"""delayq delivers a message to a topic at the millisecond that you choose."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delayq.client.async_client import AsyncClient
    from delayq.client.changing.messages import Cancelled, Rescheduled
    from delayq.client.client import Client
    from delayq.client.consuming.receiving import Leased
    from delayq.client.scheduling.schedule import Scheduled
    from delayq.config import Settings
    from delayq.connecting import connect, connect_async
    from delayq.errors import (
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
    from delayq.message import Message, State
    from delayq.policies import Policy
    from delayq.store.commands.searching import Filter
    from delayq.times import parse_duration, parse_instant

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
    "ConfigError": "delayq.errors",
    "Conflict": "delayq.errors",
    "DelayqError": "delayq.errors",
    "Filter": "delayq.store.commands.searching",
    "InvalidMessage": "delayq.errors",
    "LayoutMismatch": "delayq.errors",
    "Leased": "delayq.client.consuming.receiving",
    "Message": "delayq.message",
    "MissingExtra": "delayq.errors",
    "NotAllowed": "delayq.errors",
    "NotDevelopment": "delayq.errors",
    "NotDone": "delayq.errors",
    "NotDurable": "delayq.errors",
    "NotReady": "delayq.errors",
    "OtherFilter": "delayq.errors",
    "PastDue": "delayq.errors",
    "PoliciesChanged": "delayq.errors",
    "Policy": "delayq.policies",
    "Rescheduled": "delayq.client.changing.messages",
    "Scheduled": "delayq.client.scheduling.schedule",
    "Settings": "delayq.config",
    "State": "delayq.message",
    "StillDue": "delayq.errors",
    "StoreError": "delayq.errors",
    "StoreFull": "delayq.errors",
    "StoreRefused": "delayq.errors",
    "StoreUnavailable": "delayq.errors",
    "TooManyPending": "delayq.errors",
    "TooManyPolicies": "delayq.errors",
    "connect": "delayq.connecting",
    "connect_async": "delayq.connecting",
    "parse_duration": "delayq.times",
    "parse_instant": "delayq.times",
}


if not TYPE_CHECKING:  # type checkers know the names from above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES})
