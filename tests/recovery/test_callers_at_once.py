"""Many callers of an `AsyncClient` at once, whose messages share their way, while Redis is lost in the middle."""

from __future__ import annotations

import asyncio

import pytest

from delayq import AsyncClient, Client, Conflict, Message, Settings, StoreUnavailable
from delayq.client.scheduling.schedule import Scheduled
from tests.support.nodes import QUEUES
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

CALLERS = 64
ROUNDS = 8


def message(caller: int, number: int, body: str = "x") -> Message:
    return Message(topic="t", id=f"m{caller}-{number}", body=body, delay_time=3_600_000)


@pytest.mark.parametrize("fault", ["reset", "refuse", "reply"])
async def test_each_caller_is_told_the_truth_of_its_own_message(
    proxy: FaultProxy, valkey: ServerUnderTest, fault: str
) -> None:
    direct = Client(valkey.url, settings=Settings(queues=QUEUES, redis_timeout=REDIS_TIMEOUT))
    direct.schedule(message(7, 5, "another"))
    half, hurt = asyncio.Event(), asyncio.Event()
    made = 0

    async with AsyncClient(proxy.url, settings=Settings(queues=QUEUES, redis_timeout=REDIS_TIMEOUT)) as client:
        sizes: list[int] = []
        client.group.taken = sizes.append

        async def schedule(one: Message) -> Scheduled | Conflict:
            while True:
                try:
                    return await client.schedule(one)
                except Conflict as error:
                    return error
                except StoreUnavailable:
                    hurt.set()
                    await asyncio.sleep(0.01)

        async def call(caller: int) -> list[Scheduled | Conflict]:
            nonlocal made
            told = []
            for number in range(ROUNDS):
                made += 1
                if made == CALLERS * ROUNDS // 2:
                    half.set()
                told.append(await schedule(message(caller, number)))
            return told

        callers = [asyncio.create_task(call(caller)) for caller in range(CALLERS)]
        await half.wait()
        if fault == "reset":
            proxy.reset()
        elif fault == "reply":
            proxy.drop_reply("schedule", times=3)
        else:
            proxy.refuse()
        # Callers do not advance in step: the second round trip may still connect while the callers of the first one are done.
        gone = next(caller for caller, one in enumerate(callers) if caller != 7 and not one.done())
        callers[gone].cancel()
        if fault == "refuse":
            await hurt.wait()
            proxy.heal()
        told = await asyncio.gather(*callers, return_exceptions=True)
        assert max(sizes) > 1, "callers share an exchange"
        assert client.group.waiting == 0

    assert isinstance(told[gone], asyncio.CancelledError)
    wanted = [(caller, number) for caller in range(CALLERS) for number in range(ROUNDS)]
    found = dict(zip(wanted, direct.get_many([f"m{caller}-{number}" for caller, number in wanted]), strict=True))
    for caller, number in wanted:
        there = found[caller, number]
        if caller == gone:
            continue
        answers = told[caller]
        assert isinstance(answers, list)
        if (caller, number) == (7, 5):
            assert isinstance(answers[number], Conflict)
        else:
            assert there is not None
            answer = answers[number]
            assert isinstance(answer, Scheduled)
            assert (answer.id, answer.due) == (there.id, there.due)
    kept = sum(one is not None for one in found.values())
    assert sum(one.scheduled + one.parked for one in direct.queues()) == kept
    direct.close()
