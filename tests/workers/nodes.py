"""Settings of nodes with routes into memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from delayq.config import Settings, load_settings
from delayq.testing import MemoryTarget, register_memory_target
from tests.support.timeouts import DRAIN_TIMEOUT, REDIS_TIMEOUT, SEND_TIMEOUT


def settings_for(url: str, targets: Mapping[str, MemoryTarget], **options: Any) -> Settings:
    """Topics s.* go to local streams, `name.*` into the target of that name."""
    routes = [{"name": "streams", "match": "s.*"}]
    for name, target in targets.items():
        routes.append({"name": name, "match": f"{name}.*", "target": register_memory_target(target, name)})
    defaults: dict[str, Any] = {
        "queues": 4, "node": "node-under-test", "retry_base": 100, "retry_cap": 1_000, "redis_timeout": REDIS_TIMEOUT,
        "send_timeout": SEND_TIMEOUT, "drain_timeout": DRAIN_TIMEOUT,
    }  # fmt: skip
    return load_settings(redis_url=url, routes=json.dumps(routes), **(defaults | options))
