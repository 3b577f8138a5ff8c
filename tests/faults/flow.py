"""Messages through a running service: scheduled over HTTP, found again in the streams that they went to."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, Final, TypeVar

import httpx2
import pytest

from delayq.cli import main
from delayq.embedded.processes import LOCALHOST
from tests.support.service import OneProcess, Service
from tests.support.timeouts import HTTP_TIMEOUT
from tests.support.waiting import eventually

#: Topics that begin with 'g.' take the general path (pull, forward, ack), all others are appended by the pull itself.
ROUTES: Final = json.dumps([{"name": "general", "match": "g.*", "path": "general"}, {"name": "streams", "match": "*"}])
GENERAL: Final = "g.t"
LOCAL: Final = "s.t"

_numbers: Final = itertools.count()
T = TypeVar("T")


def now() -> int:
    """Unix ms of the true clock."""
    return time.time_ns() // 1_000_000


def wait_until(moment: int) -> None:
    """Until this Unix ms."""
    while (left := moment - now()) > 0:
        time.sleep(left / 1000)


def batch(service: Service, messages: Iterable[Mapping[str, Any]], size: int = 500) -> list[dict[str, Any]]:
    """Schedule messages, some at a time; a result each."""
    results: list[dict[str, Any]] = []
    rows = list(messages)
    for start in range(0, len(rows), size):
        answer = service.http.post("/v1/messages:batch", json={"messages": rows[start : start + size]})
        results += answer.json()["results"]
    return results


def entries(admin: Any, *streams: str) -> list[dict[str, bytes]]:
    """The entries of some streams, in the order of each; `at` is when it was appended, by the clock of Redis."""
    found = []
    for stream in streams:
        for entry_id, fields in admin.xrange(stream):
            found.append({name.decode(): value for name, value in fields.items()} | {"at": entry_id.split(b"-")[0]})
    return found


def arrivals(admin: Any, *streams: str) -> dict[str, list[int]]:
    """When each message was appended, Unix ms by the clock of Redis."""
    found: dict[str, list[int]] = {}
    for entry in entries(admin, *streams):
        found.setdefault(entry["id"].decode(), []).append(int(entry["at"]))
    return found


def left(service: Service) -> int:
    """How many messages have not ended, by the API's figures; dead letters have. -1 while the API has none."""
    answer = service.http.get("/v1/queues")
    if answer.status_code != 200:
        return -1
    stats = answer.json()["total"]
    return int(stats["depth"]) + int(stats["parked"])


def state_of(service: Service, id: str) -> str:
    """The state of a message by the API's answer; nothing while the API has none."""
    answer = service.http.get(f"/v1/messages/{id}")
    return str(answer.json()["state"]) if answer.status_code == 200 else ""


def patiently(look: Callable[[], T], what: str) -> T:
    """`eventually` for what processes answer: ten looks a second, since an answer costs an API 4 ms."""

    def rested() -> T:
        time.sleep(0.1)
        return look()

    return eventually(rested, what)


def drained(service: Service, pending: int = 0) -> None:
    """Wait until every message has ended, or all but so many."""
    patiently(lambda: left(service) == pending, "every message has ended")


def ids_of(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of results that all have the status 201."""
    assert {one["status"] for one in results} == {201}, [one for one in results if one["status"] != 201][:3]
    return [one["id"] for one in results]


def metric(worker: OneProcess, name: str) -> float:
    """The sum of a metric of a worker, over its labels."""
    url = f"http://{LOCALHOST}:{worker.settings['worker_port']}/metrics"
    lines = [line.split() for line in httpx2.get(url, timeout=HTTP_TIMEOUT).text.splitlines()]
    return sum(float(words[1]) for words in lines if words[0].partition("{")[0] == name)


def schedule(service: Service, topic: str, count: int, delay: int = 0, **fields: Any) -> list[str]:
    """Schedule messages in one batch; their ids, which lead to all queues."""
    ids = [f"{topic}-{next(_numbers)}" for _ in range(count)]
    messages = [{"topic": topic, "id": id, "delayTime": delay, "body": "b"} | fields for id in ids]
    return ids_of(batch(service, messages))


def refused(answer: httpx2.Response, status: int = 503) -> dict[str, Any]:
    """The problem of an answer that says when to ask again."""
    assert answer.status_code == status, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    problem: dict[str, Any] = answer.json()
    return problem


async def answered(api: httpx2.AsyncClient, path: str, *statuses: int) -> httpx2.Response:
    """Ask in short steps until the answer has one of these statuses; return it."""
    while (answer := await api.get(path)).status_code not in statuses:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
    return answer


def delayq(url: str, *words: str) -> tuple[int, str]:
    """The command line, in this process: its status, and all that it printed."""
    text = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(text), redirect_stderr(text):
        patch.setenv("DELAYQ_REDIS_URL", url)
        return main(words), text.getvalue()
