"""Each operation of the API: what it answers, and that it refuses invalid input, a missing right, and a Redis that is away."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.routes import OPERATIONS as DOCUMENTED
from delayq.config import Settings, load_settings
from delayq.domain.api_keys import SCOPES, Scope
from tests.api.conftest import Serving, assert_away, assert_refused
from tests.support.keys import KeyFile
from tests.support.operations import OPERATIONS, Operation, fill
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

JSON = {"content-type": "application/json"}


def test_the_table_has_every_operation() -> None:
    assert {one.call for one in OPERATIONS} == {f"{one.method} {one.path}" for one in DOCUMENTED}


async def send(api: httpx2.AsyncClient, one: Operation, path: str = "", body: Any = None, **headers: str) -> Any:
    """The answer to the call of a row, with this query or path, or this body (text, if it is bytes)."""
    path = one.url.partition("?")[0] + path if path[:1] == "?" else path or one.url
    body = one.body if body is None else body
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    if body is None:
        return await api.request(one.method, path, headers=headers)
    return await api.request(one.method, path, content=text, headers=headers | JSON)


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {name: (found[name], expected[name]) for name in expected if found[name] != expected[name]}


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.call)
async def test_a_valid_call_is_answered(settings: Settings, asgi: Serving, tmp_path: Path, one: Operation) -> None:
    keys = KeyFile(tmp_path / "keys.yaml")
    boss = keys.add("boss")
    fill(settings.redis_url)
    async with asgi(keys.settings(settings)) as api:
        answer = await send(api, one, **({} if one.right == "none" else boss))
        assert answer.status_code == one.status, answer.text
        for name, value in (one.answer or {}).items():
            assert answer.json()[name] == value
        if isinstance(one.without[0], list):
            assert all(result["status"] in (200, 201) for result in answer.json()["results"])


async def test_invalid_input_is_a_problem_with_the_name_of_the_field(
    settings: Settings, api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    fill(settings.redis_url)
    assert (await api.get("/v1/queues")).status_code == 200
    before = contents(valkey)
    found, expected = {}, {}
    for one in OPERATIONS:
        for number, (given, field) in enumerate(one.invalid):
            path, body = (given, None) if isinstance(given, str) else ("", given)
            name = f"{one.call} {number} {str(given)[:60]}"
            answer = await send(api, one, path, body)
            found[name] = assert_refused(answer)["field"] if answer.status_code == 400 else answer.text
            expected[name] = field
    assert not differences(found, expected)
    assert contents(valkey) == before


def contents(server: ServerUnderTest) -> dict[bytes, bytes]:
    """Every key with its value."""
    return {key: server.admin.dump(key) for key in server.admin.keys("*")}


#: Calls of operations that look for messages in another way if they are given business keys.
BY_KEY: list[tuple[Operation, tuple[str, Any]]] = [
    (one, ("?key=a", None) if one.method == "GET" else ("", {"keys": ["a", "b"]}))
    for one in OPERATIONS
    if one.call in ("GET /v1/messages", "POST /v1/messages:cancel", "POST /v1/messages:deliverNow")
]


@pytest.mark.parametrize("known", [True, False], ids=["lost", "never there"])
async def test_every_operation_reports_that_redis_is_away_and_works_again(
    proxy: FaultProxy, asgi: Serving, known: bool
) -> None:
    async with asgi(load_settings(redis_url=proxy.url, redis_timeout=REDIS_TIMEOUT)) as api:
        for one, given in [(one, ("", one.body)) for one in OPERATIONS] + BY_KEY:
            if known:
                proxy.heal()
                assert (await api.get("/v1/queues")).status_code == 200
            proxy.refuse()
            answer = await send(api, one, *given)
            if one.redis:
                problem = assert_away(answer)
                if "ids" in (given[1] or {}):
                    assert [result["id"] for result in problem["results"]] == given[1]["ids"]
            else:
                assert answer.status_code == 200, one.call
        proxy.heal()
        assert (await api.get("/v1/queues")).status_code == 200


def statuses(answer: httpx2.Response) -> int | list[int]:
    """The status, or that of each result of a batch."""
    if answer.status_code == 200 and "results" in answer.json():
        return [result["status"] for result in answer.json()["results"]]
    return answer.status_code


def others(right: str) -> Sequence[Scope]:
    return [scope for scope in SCOPES if scope != right]


async def test_every_operation_needs_a_key_with_the_right(
    settings: Settings, asgi: Serving, tmp_path: Path, valkey: ServerUnderTest
) -> None:
    keys = KeyFile(tmp_path / "keys.yaml")
    foreign = keys.add("press", {"reviews.*": SCOPES})
    lacking = {right: keys.add(right, {"orders.*": others(right)}) for right in SCOPES}
    fill(settings.redis_url)
    before = contents(valkey)
    found, expected = {}, {}
    async with asgi(keys.settings(settings)) as api:
        for one in OPERATIONS:
            answer = await send(api, one)
            if one.right == "none":
                assert answer.status_code == one.status
                continue
            assert_refused(answer, 401)
            assert answer.headers["www-authenticate"] == 'Bearer realm="delayq"'
            if one.right == "any":
                continue
            one_topic = {"authorization": lacking[one.right]["authorization"]} if one.right in lacking else foreign
            answers = [await send(api, one, **one_topic), await send(api, one, **foreign)]
            for each in answers:
                if isinstance(statuses(each), int) and each.status_code >= 400:
                    assert_refused(each, each.status_code)
            found[one.call] = tuple(map(statuses, answers))
            expected[one.call] = one.without
    assert not differences(found, expected)
    assert contents(valkey) == before
