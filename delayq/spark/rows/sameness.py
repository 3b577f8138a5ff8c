"""Whether a row is the message that is there, but for the run and the trace that scheduled it."""

from __future__ import annotations

import msgspec

from delayq.codec import RELATIVE, Record, encode
from delayq.message import RUN_PROPERTY, TRACEPARENT, Limits, Message

__all__ = ["same_message"]

_NO_LIMITS = Limits(body=2**40)


def same_message(record: Record, row: Message) -> bool:
    """Whether the message in the pool is what this row would have become in the run that scheduled it.

    Also when its due was relative and the row has the absolute one that came of it, as what was exported does.
    """
    properties = dict(row.properties)
    stored = record.properties
    for name in (RUN_PROPERTY, TRACEPARENT):
        properties.pop(name, None)
        if name in stored:
            properties[name] = stored[name]
    if row.expect_date is None:
        if not record.flags & RELATIVE:
            return False
    elif row.expect_date not in (record.first_asked, record.asked):
        return False
    content = encode(msgspec.structs.replace(row, properties=properties), _NO_LIMITS)
    return bytes([content[0] & ~RELATIVE]) + content[1:] == bytes([record.flags & ~RELATIVE]) + record.content[1:]
