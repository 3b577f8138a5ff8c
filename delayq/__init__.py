"""delayq: give it a message now, it hands it to a topic at the millisecond you chose."""

from delayq.client import AsyncClient, Client
from delayq.config import Settings
from delayq.errors import (
    ConfigError,
    Conflict,
    DelayqError,
    InvalidMessage,
    LayoutMismatch,
    MissingExtra,
    NotDurable,
    PastDue,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from delayq.message import Message, State
from delayq.operations import Cancelled, Rescheduled, Scheduled
from delayq.times import parse_duration, parse_instant

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "ConfigError",
    "Conflict",
    "DelayqError",
    "InvalidMessage",
    "LayoutMismatch",
    "Message",
    "MissingExtra",
    "NotDurable",
    "PastDue",
    "Rescheduled",
    "Scheduled",
    "Settings",
    "State",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "parse_duration",
    "parse_instant",
]
