"""The memory targets of this process, which routes name by URL."""

from __future__ import annotations

from urllib.parse import urlsplit

from delayq.base.errors import ConfigError
from delayq.domain.routes import Route
from delayq.targets import Target, register_target
from delayq.testing.memory_target import MemoryTarget

__all__ = ["register_memory_target"]

_targets: dict[str, MemoryTarget] = {}


def _open(url: str, route: Route, redis_url: str) -> Target:
    name = urlsplit(url).netloc
    try:
        return _targets[name]
    except KeyError:
        raise ConfigError(f"route {route.name}: no test registered a memory target named {name!r}") from None


def register_memory_target(target: MemoryTarget, name: str = "default") -> str:
    """Register `target` in this process. Return the URL for the `target` of a route. A repeated name replaces it."""
    _targets[name] = target
    register_target("memory", _open)
    return f"memory://{name}"
