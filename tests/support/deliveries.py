"""Messages as targets get them, without a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.domain.codec import encode
from delayq.domain.message import Limits, Message
from delayq.targets import Result
from workers.sending.message import InFlightMessage


def delivery(id: str, body: Any = "x", attempts: int = 0, **fields: Any) -> InFlightMessage:
    """A pulled message that was due at 20,000."""
    content = encode(Message(**({"topic": "orders", "delay_time": 0, "body": body} | fields)), Limits())
    return InFlightMessage(id.encode() + b"\x000000001", 20_000, attempts, b"0000001%013d0" % 20_000 + content)


def outcomes(results: Sequence[Result]) -> list[str]:
    """What became of each."""
    return [result.outcome for result in results]
