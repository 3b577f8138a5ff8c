"""The same call again, from several APIs at once: one id is one message. And a process that is forked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

from delayq.testing import MemoryTarget
from tests.api.conftest import in_process
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

COPIES = 20


async def test_f4_twenty_copies_of_a_call_at_once_make_one_message(valkey: ServerUnderTest) -> None:
    """F4 (duplicated HTTP retry in parallel ×20): One message: one call gets 201, the others 200.

    Other content is 409.

    F4: A late repeat reports what became of the message and makes none. Other content under its id is 409, also after
    delivery.
    """
    target = MemoryTarget()
    settings, ids = settings_for(valkey.url, target), [f"f4-{number}" for number in range(20)]
    with RunningNode(settings):
        async with in_process(settings) as one, in_process(settings) as other:
            for number, id in enumerate(ids):
                message = {"topic": "ms"[number % 2] + ".t", "id": id, "body": id, "delayTime": 100}
                calls = [api.post("/v1/messages", json=message) for api in (one, other) for _ in range(COPIES // 2)]
                statuses = Counter(answer.status_code for answer in await asyncio.gather(*calls))
                assert statuses == {201: 1, 200: COPIES - 1}
        target.wait_for_ids(ids[::2], PATIENCE)
        eventually(lambda: valkey.admin.xlen("s.t") >= len(ids) // 2, "all arrive in the stream")
    streamed = [entry[b"id"].decode() for _, entry in valkey.admin.xrange("s.t")]
    assert Counter([*target.ids, *streamed]) == dict.fromkeys(ids, 1)


FORK = """
import os, sys
from delayq import Client, Message
client = Client(sys.argv[1])
client.schedule(Message(topic="s.d11", id="parent-first", delay_time=3_600_000))  # it has a connection now

def work(name):
    for number in range(100):
        id = f"{name}-{number}"
        assert client.schedule(Message(topic="s.d11", id=id, body=id, delay_time=3_600_000)).id == id
        found = client.get(id)
        assert found is not None and found.id == id and found.record.payload == id.encode(), found
    for number in range(100):
        assert client.cancel(f"{name}-{number}").result == "cancelled"

children = []
for number in range(3):
    child = os.fork()
    if not child:
        try:
            work(f"child{number}")
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    children.append(child)
work("parent")
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_d11_forked_processes_do_not_share_connections(valkey: ServerUnderTest) -> None:
    """D11 (fork, or uvicorn workers that share sockets): A forked process makes its own connections.

    An API process has one event loop.

    D11: A forked process does not touch the connections of its parent. For more event loops, start more API
    processes.
    """
    forked = [sys.executable, "-c", FORK, valkey.url]
    ran = subprocess.run(forked, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
