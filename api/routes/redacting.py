"""Redact the parts of bodies that policies hide."""

from __future__ import annotations

from collections.abc import Iterable

from api.service import Service
from delayq.answers.messages import MessageOut
from delayq.answers.redacting import redact


async def redacted(service: Service, messages: Iterable[MessageOut | None]) -> None:
    """Redact the messages of an answer. Raises StoreError if the policies cannot be read."""
    shown = [one for one in messages if one is not None]
    if not shown:
        return
    policies = await service.policies.get()
    for one in shown:
        policy = policies.policy(one.topic)
        if policy is not None and policy.redact:
            redact(one, policy.redact)
