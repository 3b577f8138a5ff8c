"""The Python clients of the API and of Redis tell the story of all clients while answers are dropped."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

import pytest

from delayq import Client, Filter
from delayq.config import load_settings
from tests.clients import python_story
from tests.clients.conftest import STORY, TellStory
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest

#: The script of each call of the client of Redis.
SCRIPTS = {
    "schedule": "schedule", "scheduleMany": "schedule", "reschedule": "reschedule", "cancel": "cancel",
    "cancelByKeys": "cancel",
}  # fmt: skip
ROUNDS = 40


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_the_client_of_the_api_tells_the_story(tell_story: TellStory, tmp_path: Path, kind: str) -> None:
    tell_story(f"py-{kind}", [sys.executable, python_story.__file__, kind], tmp_path)


def test_the_client_of_redis_tells_the_story(valkey: ServerUnderTest) -> None:
    steps = json.loads(STORY.read_text(encoding="utf-8"))["steps"]
    steps = [step for step in steps if step["call"] not in ("receive", "ack", "handBack")]  # no worker delivers here
    chance = random.Random(1)
    dropped = calls = 0
    with FaultProxy(valkey.port) as proxy:

        def drop(call: str) -> None:
            nonlocal dropped
            if call in SCRIPTS and not proxy.armed and chance.random() < 0.2:
                dropped += 1
                proxy.drop_reply(SCRIPTS[call])

        with Client(settings=load_settings(redis_url=proxy.url)) as client:
            for number in range(ROUNDS):
                calls += asyncio.run(python_story.tell_round(client, steps, "direct", number, drop))
            proxy.heal()
            assert (calls, dropped > calls / 10) == (ROUNDS * len(steps), True)
            assert client.search(Filter(topic="story.kept")).messages == []
            left = client.search(Filter(topic="story.delivered"), 1_000).messages
            assert sorted(one.id for one in left) == sorted(f"direct-{number}-b2" for number in range(ROUNDS))
