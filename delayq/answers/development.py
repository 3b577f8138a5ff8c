"""The answer about the time of a development server."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from delayq.answers.times import Ms, Time
from delayq.base.times import format_instant
from delayq.client.changing.advance import Advanced


class AdvancedOut(msgspec.Struct, rename="camel"):
    """The time of a development server after a move."""

    now: Time
    now_ms: Ms
    ahead: Annotated[int, Meta(description="ms between this time and the machine's clock, after all moves.")]

    def domain(self) -> Advanced:
        return Advanced(self.now_ms, self.ahead)


def advanced_out(advanced: Advanced) -> AdvancedOut:
    """Return the answer with the time after a move."""
    return AdvancedOut(format_instant(advanced.now), advanced.now, advanced.ahead)
