"""The user of docs/operations.md may do all that delayq does. ./dev check compares docs/redis.md with the code."""

from __future__ import annotations

from typing import Any

from delayq import Client, Message
from delayq.config import load_settings
from delayq.store import rights
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


def test_the_user_has_the_rights_of_the_list() -> None:
    """./dev check compares the page with the list word by word."""
    assert rights.acl_line().split() == USER
