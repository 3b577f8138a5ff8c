"""The ids of messages that were handed back."""

from __future__ import annotations

from hashlib import blake2b


def next_id(first: str, count: int, topic: str = "orders.unpaid", suffix: str = "") -> str:
    """The id of a message after so many hand-backs, the last one to this topic."""
    return f"{first}.b{count}-{blake2b(topic.encode(), digest_size=4).hexdigest()}{suffix}"
