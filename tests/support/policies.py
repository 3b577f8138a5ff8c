"""Policies as an operator has set them."""

from __future__ import annotations

from typing import Any

import msgspec

from delayq.client.client import Client
from delayq.store import commands
from delayq.store.commands import Change, PoliciesSet
from delayq.store.keys import KEYS


def put_policy(client: Client, name: str = "p", *, apply: bool = True, **knobs: Any) -> str:
    """Set a policy of all topics that begin with 'orders', or take it away; bring it to every queue. The version."""
    value = msgspec.json.encode({"match": "orders*", **knobs}).decode() if knobs else ""
    put = client.store.run(commands.set_policies(KEYS, [Change(f"policy:{name}", value)]))
    assert isinstance(put, PoliciesSet)
    for queue in client.context().layouts.queues if apply else ():
        client.store.run(commands.apply_policies(KEYS.queue(queue), put.version, ()))
    return put.version
