"""All targets, as the conformance suite finds them: an adapter each, in `tests/targets/adapters/`.

An adapter knows how to get messages to a target and how to see what arrived there. It is made of what a fixture gives
(the broker), and says with `route` how a topic gets there, with `read` what arrived. Each topic is read once. It may
have more: `refuse` gives the fields of a message that the target never takes, `never` those of messages which are
refused when they are scheduled, `hang` and `heal` make the target swallow everything and answer nothing (without them the
broker's own `pause` and `resume` do), `port` is where one listens that is spoken with before it takes messages, `suits` says
whether a topic lies there, `read_on` gives all that arrived (without it `read` does), `is_emptied` says that what was read is
gone, `close` lets go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from msgspec.structs import replace

from delayq.domain.routes import Route
from delayq.targets import Delivery, Result, Target, open_target, register_target
from tests.targets.adapters import Seen

ADAPTERS = Path(__file__).parent / "adapters"
NOWHERE = "redis://127.0.0.1:1/0"


class Adapter(Protocol):
    """What every adapter has."""

    def route(self, topic: str) -> Route:
        """A route that takes the topic to the target; what has to be there before is made now."""

    def read(self, topic: str, count: int) -> list[Seen]:
        """What arrived, as soon as there are so many."""


@dataclass(frozen=True)
class Kind:
    """A kind of target. `server` is the fixture that its adapter is made of; `lacks` are fields that it leaves out."""

    name: str
    module: str
    adapter: str
    server: str
    schemes: tuple[str, ...]
    lacks: frozenset[str] = frozenset()
    text_only: bool = False  # bodies arrive as text, what is none replaced
    no_empty: bool = False  # a message without a body is refused
    group: str = ""  # the layer is long, and the tests of these targets share a process

    @property
    def there(self) -> bool:
        """Whether its adapter is in this tree."""
        return (ADAPTERS / f"{self.module}.py").exists()

    def adapt(self, server: Any) -> Adapter:
        """Its adapter."""
        found = getattr(import_module(f"tests.targets.adapters.{self.module}"), self.adapter)
        return cast(Adapter, found(server))


NO_KEY = frozenset({"ordering_key"})
KINDS = (
    Kind("redis-stream", "redis_stream", "RedisStreamAdapter", "elsewhere", ("redis+stream",)),
    Kind("redis-cluster", "redis_stream", "RedisStreamAdapter", "cluster", ("redis+stream",), group="cluster"),
    Kind("webhook", "webhook", "WebhookAdapter", "receiver", ("http", "https")),
    Kind("log", "log", "LogAdapter", "capsys", ("log",), NO_KEY, text_only=True),
    Kind("memory", "memory", "MemoryAdapter", "memory_target", ()),
    Kind("kafka", "kafka", "KafkaAdapter", "kafka", ("kafka",), group="kafka"),
    Kind("rocketmq", "rocketmq", "RocketMQAdapter", "rocketmq", ("rocketmq",), no_empty=True, group="rocketmq"),
    Kind("rabbitmq", "rabbitmq", "RabbitMQAdapter", "rabbitmq", ("rabbitmq", "rabbitmqs"), group="rabbitmq"),
)


def fields(kind: Kind, one: Delivery) -> Seen:
    """What has to arrive of a message."""
    body = one.payload.decode(errors="replace").encode() if kind.text_only else one.payload
    whole = {
        "topic": one.topic, "tags": one.tags, "keys": one.keys, "properties": dict(one.properties),
        "ordering_key": one.ordering_key, "due": one.due, "attempt": one.attempt,
    }  # fmt: skip
    known: dict[str, Any] = {name: None if name in kind.lacks else value for name, value in whole.items()}
    return Seen(id=one.id, payload=body, **known)


# -- faults --------------------------------------------------------------------------------------------------------------


@contextmanager
def hanging(adapter: Adapter, server: Any) -> Iterator[None]:
    """While the block runs, the target takes what comes and answers nothing."""
    hang: Callable[[], None] = getattr(adapter, "hang", None) or server.pause
    heal: Callable[[], None] = getattr(adapter, "heal", None) or server.resume
    hang()
    try:
        yield
    finally:
        heal()


class Flaky:
    """Before a real target: each message fails `faults` says how often, sometimes after it arrived all the same."""

    def __init__(self, target: Target, faults: Mapping[str, Sequence[str]]) -> None:
        self.max_batch = target.max_batch
        self._target = target
        self._faults = {id: list(outcomes) for id, outcomes in faults.items()}
        self._lock = threading.Lock()

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        with self._lock:
            faults = [self._next(one.id) for one in batch]
        sent = [one for one, fault in zip(batch, faults, strict=True) if fault != "unavailable"]
        answers = iter(self._target.send(sent, timeout) if sent else ())
        results = []
        for fault in faults:
            answer = Result.unavailable("kept back by the test") if fault == "unavailable" else next(answers)
            results.append(Result.unknown("told so by the test") if fault == "unknown" else answer)
        return results

    def _next(self, id: str) -> str:
        left = self._faults.get(id.partition(".")[0])
        return left.pop(0) if left else ""

    def close(self) -> None:
        self._target.close()


def put_flaky_before(route: Route, faults: Mapping[str, Sequence[str]]) -> Route:
    """The same route with a `Flaky` before its target; `faults` are the outcomes of first attempts by id."""

    def factory(url: str, opened: Route, redis_url: str) -> Target:
        return Flaky(open_target(route, redis_url), faults)

    register_target("flaky", factory)
    return replace(route, target="flaky:", options={})
