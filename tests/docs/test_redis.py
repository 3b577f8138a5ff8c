"""docs/redis.md, compared with the code."""

from __future__ import annotations

import re
from typing import Any

import pytest

from delayq import Client, Message
from delayq.config import load_settings
from delayq.store import scripts
from delayq.store.commands import COUNTERS
from delayq.store.keys import AUDIT, META, NODES, QueueKeys, rate_key, report_key, slots_key
from tests.docs.blocks import ROOT, blocks_of
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

PAGE = ROOT / "docs" / "redis.md"
OPERATIONS = ROOT / "docs" / "operations.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_every_key_is_described() -> None:
    keys = QueueKeys("q")
    names = [str(getattr(keys, name)) for name in QueueKeys.__slots__ if name != "tag"]
    names += [keys.parked("t:<route>"), keys.parked("k:<route>/<ordering key>"), keys.stream("<topic>"), META, NODES]
    names += [rate_key("<name>"), slots_key("<name>"), AUDIT, report_key("<name>")]
    assert [name for name in names if f"| `{name}` |" not in TEXT] == []


def test_every_field_of_state_is_described() -> None:
    written: set[str] = set(COUNTERS)
    writes = re.compile(r"'(?:HSET|HINCRBY)', (?:state|KEYS\[1\]), '([a-z_]+)'")
    for name in scripts.NAMES:
        written.update(writes.findall(scripts.source(name)))
    written -= {"layouts", "version", "era"}
    assert {"epoch", "watermark", "sleep_until", "generation"} <= written
    assert [name for name in written if f"`{name}`" not in TEXT] == []


@pytest.mark.parametrize("name", scripts.NAMES)
def test_the_scripts_that_go_on_when_redis_is_full_are_named(name: str) -> None:
    paragraph = next(part for part in TEXT.split("\n\n") if part.startswith("**When it is full**"))
    refused, going_on = paragraph.split("allow-oom")
    flags = re.search(r"^-- @flags (.+)$", scripts.source(name), re.MULTILINE)
    if flags is None and name != "layout":
        assert f"`{name}`" in refused
    elif flags is not None and flags[1] == "allow-oom":
        assert f"`{name}`" in going_on


def test_the_user_may_do_all_that_delayq_does(valkey: ServerUnderTest) -> None:
    (block,) = (block for block in blocks_of(OPERATIONS) if block.note == "run by tests/docs/test_redis.py")
    admin: Any = valkey.admin
    admin.execute_command(*block.text.split())
    url = valkey.url.replace("redis://", "redis://delayq:secret@")
    try:
        with RunningNode(load_settings(redis_url=url)), Client(url) as client:
            client.schedule(Message(topic="orders.unpaid", id="later", delay_time=60_000))
            assert client.cancel("later").result == "cancelled"
            client.schedule(Message(topic="orders.unpaid", body="now", delay_time=0))
            eventually(lambda: valkey.admin.xlen("orders.unpaid"), "the message is in its stream")
    finally:
        admin.execute_command("ACL", "DELUSER", "delayq")


def test_the_user_may_run_every_command_there_is(valkey: ServerUnderTest) -> None:
    (block,) = (block for block in blocks_of(OPERATIONS) if block.note == "run by tests/docs/test_redis.py")
    admin: Any = valkey.admin
    allowed: set[str] = set()
    for word in block.text.split():
        if word.startswith("+@"):
            allowed.update(name.decode() for name in admin.execute_command("ACL", "CAT", word[2:]))
        elif word.startswith("+"):
            allowed.add(word[1:])
    texts = [scripts.source(name) for name in scripts.NAMES]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "delayq").rglob("*.py")]
    calls = re.compile(r"(?:\.call|plain|every)\(['\"]([A-Z]+)")
    called = {command.lower() for text in texts for command in calls.findall(text)}
    assert {"zadd", "info"} <= called
    # Without it, which the page names, nothing tells how a disk is synced.
    assert called - allowed == {"config"}
    page = OPERATIONS.read_text(encoding="utf-8")
    assert "`+config|get`" in page
