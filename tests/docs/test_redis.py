"""The user of docs/operations.md may do all that delayq does. ./dev check compares docs/redis.md with the code."""

from __future__ import annotations

import re
from typing import Any

from delayq import Client, Message
from delayq.config import load_settings
from delayq.store import scripts
from tests.docs.blocks import ROOT, blocks_of
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

PAGE = ROOT / "docs" / "operations.md"
(USER,) = (block.text.split() for block in blocks_of(PAGE) if block.note == "run by tests/docs/test_redis.py")


def test_the_user_may_do_all_that_delayq_does(valkey: ServerUnderTest) -> None:
    admin: Any = valkey.admin
    admin.execute_command(*USER)
    url = valkey.url.replace("redis://", "redis://delayq:secret@")
    settings = load_settings(redis_url=url, redis_timeout=REDIS_TIMEOUT)
    try:
        with RunningNode(settings), Client(settings=settings) as client:
            client.schedule(Message(topic="orders.unpaid", id="later", delay_time=60_000))
            assert client.cancel("later").result == "cancelled"
            client.schedule(Message(topic="orders.unpaid", body="now", delay_time=0))
            eventually(lambda: valkey.admin.xlen("orders.unpaid"), "the message is in its stream")
    finally:
        admin.execute_command("ACL", "DELUSER", "delayq")


def test_the_user_may_run_every_command_there_is(valkey: ServerUnderTest) -> None:
    admin: Any = valkey.admin
    allowed: set[str] = set()
    for word in USER:
        if word.startswith("+@"):
            allowed.update(name.decode() for name in admin.execute_command("ACL", "CAT", word[2:]))
        elif word.startswith("+"):
            allowed.add(word[1:])
    texts = [scripts.source(name) for name in scripts.NAMES]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "delayq").rglob("*.py")]
    calls = re.compile(r"(?:\.call|plain|every)\(['\"]([A-Z]+)")
    called = {command.lower() for text in texts for command in calls.findall(text)}
    assert {"zadd", "info"} <= called
    # The page names `+config|get`, too: without it nobody knows how Redis syncs its file.
    assert called - allowed == {"config"}
    assert "`+config|get`" in PAGE.read_text(encoding="utf-8")
