"""The story of clients/story.json, told by a Python client.

As a program: `python python_story.py threads|asyncio STORY RUN ROUNDS AT_ONCE`, with the API at DELAYQ_API_URL.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from delayq import Conflict, DelayqError, InvalidMessage, Message, Scheduled, StoreUnavailable, http
from delayq.base.clock import SystemClock
from delayq.client.consuming.entries import Leased
from delayq.webhooks import SignatureError, verify_webhook

Json = Mapping[str, Any]


class _Stopped(SystemClock):
    def __init__(self, seconds: int) -> None:
        self._now = seconds * 1000

    def now(self) -> int:
        """The given time."""
        return self._now


async def tell_round(client: Any, steps: list[Json], run: str, number: int, before: Callable[[str], None]) -> int:
    """Perform the steps of one round and return their number. `before` is called before each attempt with its call.

    A client of Redis leaves the repeat after a lost reply to its caller; a client of the API repeats by itself.
    """
    text = json.dumps(steps).replace("{run}", run).replace("{n}", str(number))
    earlier: dict[str, Any] = {}
    for step in json.loads(text):
        given = step["with"] | {"received": earlier.get(step["with"].get("received"))}
        found = await _perform(client, step["call"], given, before)
        earlier[step["name"]] = found
        shown = _received(found) if isinstance(found, Leased) else found
        assert not (wrong := difference(shown, step["expect"], earlier, ())), f"{run} {number} {step['name']}: {wrong}"
    return len(steps)


async def _perform(client: Any, call: str, given: Json, before: Callable[[str], None]) -> Any:
    message = _message(given) if call == "schedule" else None
    batch = [_message(one) for one in given.get("messages", ())]
    while True:
        before(call)
        try:
            return await _call(client, call, given, message, batch)
        except StoreUnavailable as error:
            if isinstance(client, (http.Client, http.AsyncClient)):
                raise
            if message is not None and message.id is None:
                message = msgspec.structs.replace(message, id=error.id)


async def _call(client: Any, call: str, given: Json, message: Message | None, batch: list[Message]) -> Any:
    match call:
        case "schedule":
            try:
                return _shown(await _ended(client.schedule(message)))
            except (Conflict, InvalidMessage) as error:
                return _shown(error)
        case "scheduleMany":
            outcomes = await _ended(client.schedule_many(batch))
            for outcome in outcomes:
                if isinstance(outcome, StoreUnavailable):
                    raise outcome
            return {"results": [_shown(one) for one in outcomes]}
        case "reschedule":
            moved = await _ended(client.reschedule(given["id"], delay_time=given["delayTime"]))
            if moved.due is None:
                return {"problem": {"status": 409, "kind": "conflict"}}
            return {"id": moved.id, "state": moved.result, "dueMs": moved.due}
        case "get":
            found = await _ended(client.get(given["id"]))
            return None if found is None else {"id": found.id, "state": found.state, "topic": found.message.topic}
        case "find":
            return {"count": len(await _ended(client.find(given["key"])))}
        case "cancel":
            cancelled = await _ended(client.cancel(given["id"]))
            return {"id": cancelled.id, "result": cancelled.result}
        case "cancelByKeys":
            return {"keys": [await _cancelled(client, key) for key in given["keys"]]}
        case "receive":
            options = {"group": given["group"], "max": 1, "wait": "20s", "lease": "1h"}
            while not (found := await _ended(client.receive(given["topic"], **options))):
                pass
            return found[0]
        case "ack":
            (done,) = await _ended(client.ack(given["received"]))
            return {"result": done.result}
        case "handBack":
            return {"result": (await _ended(client.hand_back(given["received"]))).result}
        case "verifyWebhook":
            return _verified(given)
    raise AssertionError(f"there is no call {call}")


async def _ended(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def _cancelled(client: Any, key: str) -> Json:
    outcomes = await _ended(client.cancel_by_key(key))
    for outcome in outcomes:
        if isinstance(outcome, DelayqError):
            raise outcome
    return {"key": key, "count": len(outcomes), "results": sorted({one.result for one in outcomes})}


def _message(given: Json) -> Message:
    return Message(
        topic=given["topic"],
        id=given.get("id"),
        body=given.get("body", ""),
        keys=tuple(given.get("keys", ())),
        delay_time=given.get("delayTime"),
        expect_date=given.get("expectDate"),
    )


def _shown(outcome: Any) -> Json:
    if isinstance(outcome, Scheduled):
        return {"id": outcome.id, "state": outcome.state, "dueMs": outcome.due, "created": outcome.created}
    if isinstance(outcome, InvalidMessage):
        return {"problem": {"status": 400, "kind": "invalid", "field": outcome.field}}
    assert isinstance(outcome, Conflict), outcome
    return {"problem": {"status": 409, "kind": "conflict"}}


def _received(one: Leased) -> Json:
    return {"topic": one.topic, "deliveries": one.deliveries, "handBacks": one.hand_backs}


def _verified(given: Json) -> Json:
    try:
        got = verify_webhook(given["headers"], given["body"].encode(), given["secret"], clock=_Stopped(given["now"]))
    except SignatureError:
        return {"refused": True}
    return {
        "id": got.id, "topic": got.topic, "dueMs": got.due, "attempt": got.attempt, "keys": [*got.keys],
        "properties": got.properties, "body": got.body.decode(),
    }  # fmt: skip


def difference(found: Any, expected: Any, earlier: Json, path: tuple[str, ...]) -> str:
    """Return where a result lacks something that is expected; '' if it lacks nothing."""
    if isinstance(expected, dict) and "same" in expected:
        value: Any = earlier[expected["same"]]
        for part in path:
            value = value[part]
        return difference(found, value, earlier, path)
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return f"{path} is {found}, not {expected}"
        parts = (difference(found.get(name), value, earlier, (*path, name)) for name, value in expected.items())
        return next(filter(None, parts), "")
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{path} is {found}, not {expected}"
        pairs = enumerate(zip(found, expected, strict=True))
        return next(filter(None, (difference(a, b, earlier, (*path, str(at))) for at, (a, b) in pairs)), "")
    return "" if found == expected else f"{path} is {found}, not {expected}"


def _in_threads(steps: list[Json], run: str, rounds: int, at_once: int) -> int:
    with http.Client() as client, ThreadPoolExecutor(at_once) as threads:
        told = threads.map(
            lambda number: asyncio.run(tell_round(client, steps, run, number, lambda _: None)), range(rounds)
        )
        return sum(told)


async def _on_a_loop(steps: list[Json], run: str, rounds: int, at_once: int) -> int:
    room = asyncio.Semaphore(at_once)
    async with http.AsyncClient() as client:

        async def tell(number: int) -> int:
            async with room:
                return await tell_round(client, steps, run, number, lambda _: None)

        return sum(await asyncio.gather(*map(tell, range(rounds))))


def main(kind: str, story: str, run: str, rounds: str, at_once: str) -> None:
    """Tell the story and print the number of calls."""
    steps = json.loads(Path(story).read_text(encoding="utf-8"))["steps"]
    given = steps, run, int(rounds), int(at_once)
    print(_in_threads(*given) if kind == "threads" else asyncio.run(_on_a_loop(*given)))


if __name__ == "__main__":
    main(*sys.argv[1:])
