"""One run: start everything, make traffic and faults, heal, wait until nothing is left, check the history."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from reliability.chaos.changers import Changers
from reliability.chaos.checker import Verdict, check
from reliability.chaos.consumer import Consumer
from reliability.chaos.faults import deal_faults, draw_faults
from reliability.chaos.history import History
from reliability.chaos.injector import Injector
from reliability.chaos.options import Options
from reliability.chaos.producers import Producers
from reliability.chaos.stack import GENERAL, STREAMS, WINDOW, Stack
from testbed.zookeeper import ZooKeeperServer

#: Makes what goes on beside the traffic, for as long as that lasts.
Beside = Callable[[Stack], AbstractContextManager[object]]


class _Actor(Protocol):
    """The parts that run beside the faults, in threads of their own."""

    failed: list[BaseException]

    def start(self) -> None:
        """Begin."""


def run(
    options: Options,
    *,
    zookeeper: ZooKeeperServer | None = None,
    root: str = "/delayq",
    say: Callable[[str], None] = lambda text: None,
    beside: Beside = nullcontext,
) -> Verdict:
    """Run, from the main thread, with `beside` around the traffic; raises ServerMissing where there is no ZooKeeper."""
    options.folder.mkdir(parents=True, exist_ok=True)
    with History(options.folder) as history:
        history.run(options=options.plain())
        with Stack(options, zookeeper, root) as stack:
            say("started: faults and traffic begin")
            left, injector = _trouble(options, stack, history, say, beside)
            ended = stack.stop()
    verdict = check(options.folder, window=WINDOW)
    verdict.left = left
    verdict.died = injector.died + ended
    history.run(options=options.plain(), line=verdict.line, wrong=verdict.wrong, examples=verdict.examples)
    if not verdict.wrong:
        for server in ("redis", "target"):  # the data of Redis are large, and have no more than the history
            shutil.rmtree(options.folder / server / "appendonlydir", ignore_errors=True)
    return verdict


def _trouble(
    options: Options, stack: Stack, history: History, say: Callable[[str], None], beside: Beside
) -> tuple[int, Injector]:
    """Traffic and faults, and the quiet afterwards; how many messages are left, and what was injected."""
    faults = options.aimed
    if faults is None and options.each_kind:
        faults = tuple(deal_faults(options.seed, options.seconds, options.kinds, stack.counts()))
    elif faults is None:
        faults = tuple(draw_faults(options.seed, options.seconds, options.faults_every, options.kinds, stack.counts()))
    changers = Changers(stack.urls, history)
    producers = Producers(options, stack.urls, stack.settings(), history, changers.accepted)
    consumers = [
        Consumer(stack.redis.url, STREAMS, history),
        Consumer(stack.target.url, GENERAL, history),
    ]
    injector = Injector(stack, history)
    actors: Sequence[_Actor] = [*consumers, changers, producers]
    for actor in actors:
        actor.start()
    told = _Progress(say)

    def go_on() -> bool:
        told(f"{producers.asked} messages, {sum(one.read for one in consumers)} forwarded, {injector.injected} faults")
        return not any(actor.failed for actor in actors)

    patience = drain = 0.0
    try:
        with beside(stack):
            injector.run(faults, options.seconds, go_on)
        injector.heal()
        patience, drain = options.patience, options.drain
        say(f"{injector.injected} faults injected ({injector.skipped} met something broken already): all is healed")
    finally:
        producers.stop(patience)
        changers.stop(patience)
        left = _wait_until_nothing_is_left(stack, drain)
        for consumer in consumers:
            consumer.stop(drain)
    for actor in actors:
        for error in actor.failed:
            raise error
    return left, injector


class _Progress:
    """Prints a line once a minute."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._at = time.monotonic() + 60

    def __call__(self, text: str) -> None:
        if time.monotonic() >= self._at:
            self._at += 60
            self._say(text)


def _wait_until_nothing_is_left(stack: Stack, seconds: float) -> int:
    """How many messages are left in the end; -1 if that is unknown."""
    deadline = time.monotonic() + seconds
    while (left := stack.left()) != 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return -1 if left is None else left
