"""Wrong paths, methods, media and parameters."""

from __future__ import annotations

import httpx2
import pytest

from tests.api.conftest import assert_refused

JSON = {"content-type": "application/json"}
GOOD = '"topic":"orders","delayTime":1000'


@pytest.mark.parametrize("media", ["application/json; charset=utf-8", "Application/JSON", "application/ld+json"])
async def test_json_may_be_called_by_its_other_names(api: httpx2.AsyncClient, media: str) -> None:
    answer = await api.post("/v1/messages", content="{" + GOOD + "}", headers={"content-type": media})
    assert answer.status_code == 201


async def test_what_has_no_path_is_not_found(untouched: httpx2.AsyncClient) -> None:
    for path in ("/v1", "/v1/message", "/v1/messages/", "/v1/messages/a/b", "/v1/messages:bulk", "/v2/messages"):
        assert_refused(await untouched.get(path), 404)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/messages", "GET, HEAD, POST"),
        ("GET", "/v1/messages:batch", "POST"),
        ("POST", "/v1/messages/a", "DELETE, GET, HEAD, PATCH"),
        ("TRACE", "/v1/queues", "GET, HEAD"),
        ("DELETE", "/livez", "GET, HEAD"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_refused_with_those_it_takes(
    untouched: httpx2.AsyncClient, method: str, path: str, allow: str
) -> None:
    answer = await untouched.request(method, path)
    assert_refused(answer, 405)
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/messages?topic=a%5Bb%5D", "topic"),
        ("/v1/messages?topic=", "topic"),
        ("/v1/messages?state=lost", "state"),
        ("/v1/messages?dueFrom=tomorrow", "dueFrom"),
        ("/v1/messages?dueFrom=2&dueTo=1", "dueTo"),
        ("/v1/messages?property=run", "property"),
        ("/v1/messages?idPrefix=a%20b", "idPrefix"),
        ("/v1/messages?limit=0", "limit"),
        ("/v1/messages?pageToken=abc", "pageToken"),
        ("/v1/messages?key=a&pageToken=b", "pageToken"),
        ("/v1/messages:count?tags=a", "tags"),
        ("/v1/messages:count?state=lost", "state"),
        ("/v1/forecast?from=2&to=1", "to"),
        ("/v1/forecast?step=0", "step"),
        ("/v1/forecast?step=1s", "step"),
        ("/v1/forecast?step=often", "step"),
        ("/v1/forecast?topic=%5B", "topic"),
        ("/v1/topics?match=%5B", "match"),
        ("/v1/topics?paused=maybe", "paused"),
        ("/v1/messages?key=", "key"),
        ("/v1/messages?key=a%20b", "key"),
        ("/v1/messages?key=a%0d%0ab", "key"),
        ("/v1/messages?key=a&key=b", "key"),
        ("/v1/messages?keys=a", "keys"),
        ("/v1/messages?key=a&limit=0", "limit"),
        ("/v1/messages/a%20b", "id"),
        ("/v1/messages/a%ff", "id"),
        ("/v1/messages/" + "a" * 129, "id"),
        ("/v1/messages/a?x=1", "x"),
        ("/v1/queues?x=1", "x"),
        ("/v1/nodes?node=a", "node"),
        ("/v1/stats?x=", "x"),
        ("/v1/dead-letters?limit=0", "limit"),
        ("/v1/dead-letters?limit=1001", "limit"),
        ("/v1/dead-letters?limit=1.0", "limit"),
        ("/v1/dead-letters?limit=%D9%A3", "limit"),
        ("/v1/dead-letters?limit=-1", "limit"),
        ("/v1/dead-letters?limit=" + "9" * 5000, "limit"),
        ("/v1/dead-letters?pageToken=x", "pageToken"),
        ("/v1/dead-letters?pageToken=", "pageToken"),
        ("/v1/dead-letters?pageToken=%C3%BC", "pageToken"),
        ("/v1/dead-letters?page=2", "page"),
    ],
    ids=lambda value: value[:60],
)
async def test_a_wrong_parameter_is_refused_by_its_name(untouched: httpx2.AsyncClient, path: str, field: str) -> None:
    assert assert_refused(await untouched.get(path))["field"] == field


async def test_a_query_that_is_no_text_is_refused(untouched: httpx2.AsyncClient) -> None:
    assert_refused(await untouched.get("/v1/messages?key=%ff"))
    assert_refused(await untouched.get("/v1/messages?" + "&".join(f"k{i}=1" for i in range(200))))
