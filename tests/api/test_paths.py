"""Wrong paths, methods, media and parameters."""

from __future__ import annotations

import httpx2

from tests.api.conftest import assert_refused

JSON = {"content-type": "application/json"}
GOOD = '"topic":"orders","delayTime":1000'


async def test_json_has_several_media_types(api: httpx2.AsyncClient) -> None:
    for media in ("application/json; charset=utf-8", "Application/JSON", "application/ld+json"):
        answer = await api.post("/v1/messages", content="{" + GOOD + "}", headers={"content-type": media})
        assert answer.status_code == 201


async def test_what_has_no_path_is_not_found(untouched: httpx2.AsyncClient) -> None:
    for path in ("/v1", "/v1/message", "/v1/messages/", "/v1/messages/a/b", "/v1/messages:bulk", "/v2/messages"):
        assert_refused(await untouched.get(path), 404)


async def test_a_method_that_a_path_does_not_take_is_refused_with_those_it_takes(untouched: httpx2.AsyncClient) -> None:
    for method, path, allow in (
        ("PUT", "/v1/messages", "GET, HEAD, POST"),
        ("GET", "/v1/messages:batch", "POST"),
        ("POST", "/v1/messages/a", "DELETE, GET, HEAD, PATCH"),
        ("TRACE", "/v1/queues", "GET, HEAD"),
        ("DELETE", "/livez", "GET, HEAD"),
    ):
        answer = await untouched.request(method, path)
        assert_refused(answer, 405)
        assert answer.headers["allow"] == allow


async def test_a_query_that_is_no_text_is_refused(untouched: httpx2.AsyncClient) -> None:
    assert_refused(await untouched.get("/v1/messages?key=%ff"))
    assert_refused(await untouched.get("/v1/messages?" + "&".join(f"k{i}=1" for i in range(200))))
