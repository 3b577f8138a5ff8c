"""The target of docs/targets-own.md, at work in a node."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from delayq import Client, ConfigError, InvalidMessage, Message
from delayq.config import Settings, load_settings
from delayq.targets import TargetFactory, register_target
from tests.docs.blocks import ROOT, blocks_of
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

PAGE = ROOT / "docs" / "targets-own.md"
(CODE, ENTRY_POINT, ROUTES, CHECK) = (
    block.text for block in blocks_of(PAGE) if block.note == "run by tests/docs/test_targets.py"
)


def settings_for(server: ServerUnderTest, routes: str) -> Settings:
    return load_settings(redis_url=server.url, redis_timeout=REDIS_TIMEOUT, routes=routes)


def lines_target() -> TargetFactory:
    """What the entry point of the page names."""
    ((scheme, path),) = tomllib.loads(ENTRY_POINT)["project"]["entry-points"]["delayq.targets"].items()
    names: dict[str, Any] = {}
    exec(compile(CODE, str(PAGE), "exec", dont_inherit=True), names)
    factory: TargetFactory = names[path.partition(":")[2]]
    register_target(scheme, factory)
    return factory


def test_the_target_gets_what_is_due_and_can_refuse_it(valkey: ServerUnderTest, tmp_path: Path) -> None:
    lines_target()
    file = tmp_path / "orders.txt"
    settings = settings_for(valkey, ROUTES.replace("/var/log/orders.txt", str(file)))
    with RunningNode(settings), Client(settings=settings) as client:
        client.schedule(Message(topic="orders.paid", body="order 1", id="one", delay_time=0))
        client.schedule(Message(topic="orders.paid", body="order\n2", id="two", delay_time=0))
        eventually(lambda: file.read_bytes() == b"one\torder 1\n", "the message is in the file")
        (letter,) = eventually(lambda: client.dead_letters().letters, "the other one is a dead letter")
    assert (letter.id, letter.reason) == ("two", "a line break in the body")


def test_without_its_file_the_worker_does_not_start(valkey: ServerUnderTest, tmp_path: Path) -> None:
    lines_target()
    routes = ROUTES.replace("/var/log/orders.txt", str(tmp_path / "nowhere" / "orders.txt"))
    with pytest.raises(ConfigError, match="orders-file"), RunningNode(settings_for(valkey, routes)):
        pass


def test_with_its_check_a_message_is_refused_when_it_is_scheduled(valkey: ServerUnderTest) -> None:
    names: dict[str, Any] = {}
    exec(compile(CODE + CHECK, str(PAGE), "exec", dont_inherit=True), names)
    register_target("checked", names["LinesTarget"], names["LinesCheck"])
    routes = ROUTES.replace('"lines:', '"checked:')
    with Client(settings=settings_for(valkey, routes)) as client:
        client.schedule(Message(topic="orders.paid", body="order 1", delay_time=60_000))
        with pytest.raises(InvalidMessage, match="body: has a line break"):
            client.schedule(Message(topic="orders.paid", body="order\n2", delay_time=60_000))
