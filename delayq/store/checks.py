"""What delayq expects of a Redis, said aloud by the worker, `/readyz` and `delayq doctor`."""

from __future__ import annotations

from typing import Any

import msgspec

from delayq.errors import ConfigError
from delayq.store.commands import Command, plain

__all__ = ["Server", "complaints", "refuse", "server"]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a server that matter; None where it does not say."""

    name: str
    version: str
    aof: bool | None
    policy: str | None
    max_memory: int | None
    used_memory: int
    role: str
    loading: bool


def server() -> Command[Server]:
    """Ask a server for its settings."""
    return plain("INFO", read=_read)


def _read(reply: Any) -> Server:
    info: dict[str, str] = {}
    if isinstance(reply, dict):
        info = {str(name): str(value) for name, value in reply.items()}
    else:
        for line in reply.decode().splitlines():
            name, colon, value = line.partition(":")
            if colon:
                info[name] = value
    name = info.get("server_name", "redis")
    version = info.get(f"{name}_version", info.get("redis_version", "unknown"))
    return Server(
        name=name, version=version, aof=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        policy=info.get("maxmemory_policy"), max_memory=int(info["maxmemory"]) if "maxmemory" in info else None,
        used_memory=int(info.get("used_memory", 0)), role=info.get("role", "unknown"),
        loading=info.get("loading") == "1",
    )  # fmt: skip


def complaints(server: Server) -> list[str]:
    """What is wrong with a server, a sentence each; the empty list if nothing is."""
    found = []
    if server.policy not in (None, "noeviction"):
        found.append(
            f"maxmemory-policy is {server.policy}, which lets Redis throw messages away: "
            "run CONFIG SET maxmemory-policy noeviction"
        )
    if server.aof is False:
        found.append("the append-only file is off, so a restart of Redis loses messages: run CONFIG SET appendonly yes")
    if server.role not in ("master", "unknown"):
        found.append("this is a replica, which takes no writes: point DELAYQ_REDIS_URL at its primary")
    return found


def refuse(server: Server) -> None:
    """Raise ConfigError for a server that would silently lose messages."""
    if server.policy not in (None, "noeviction"):
        raise ConfigError(f"this Redis cannot be trusted: {complaints(server)[0]}")
