"""Invalid paths, methods, media types and messages: the right status, the field by name, and nothing is half done."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest

from delayq.config import Settings
from tests.api.conftest import Serving, assert_refused

JSON = {"content-type": "application/json"}
GOOD = '"topic":"orders","delayTime":1000'

#: JSON values that a field does not take, in a message that is valid without them.
INVALID = {
    "topic": [
        '""', "null", "1", '"two words"', '"delayq:x"', '"a{b}"', '"a*"', r'"a\r\nb"', r'"a\u0000"', f'"{"a" * 256}"'
    ],
    "delayTime": [
        "null", "-1", "1.0", "1.5", "1e3", "1e400", "NaN", "Infinity", "-Infinity", "true", "[1]", '"soon"', '"1000"', '"-5s"',
        '"4000d"', "1152921504606846976", "99999999999999999999999", "9" * 5000, '1,"expectDate":1', '1,"delayLevel":1',
    ],
    "expectDate": [
        "-1", "false", "1.5", '"tomorrow"', '"2030-01-01T00:00:00"', '"2030-02-30T00:00:00Z"', '"9999-12-31T23:59:59Z"',
        "9007199254740993", "0", "1795713285", "978307199999", '"1970-01-01T00:00:00Z"',
    ],
    "delayLevel": ["0", '"1"', "true"],
    "id": [
        '""', '"a b"', r'"a\r\nb"', r'"a\u0000"', '"{1}"', '"ü"', "7", f'"{"a" * 129}"', f'"{"a" * 128}","orderingKey":"k"',
        r'"\ud800"', r'"\ud800 and more"', r'"\udc00"',
    ],
    "tags": [r'"a\nb"', '["a"]', f'"{"ü" * 128}"'],
    "keys": [
        '"a"', '[""]', '["a b"]', r'["a\u0000"]', r'["a\r\nb"]', '["a","a"]', json.dumps([f"{i}" for i in range(17)])
    ],
    "keys[1]": ['["a",1]', r'["a","\ud800"]'],
    "properties": ["[]", r'{"a":"b\r\nc"}', r'{"a\nb":"c"}', '{"":"c"}', f'{{"a":"{"b" * 8193}"}}'],
    "properties[...]": ['{"a":1}'],
    "properties.a": [r'{"a":"\ud800"}'],
    "orderingKey": [r'"a\u0000"', "5"],
    "maxAttempts": ["0", "true", "1.5"],
    "expireAfter": ["0", "-5", '"never"'],
    "window": ["0", '"1d1ms"', '"soon"', "1.5", "-1"],
    "bodyBase64": ['"!"', '"YQ"', '"YQ==","body":"a"'],
    "body": ["NaN", "1e400", r'"\ud800"', "nul", "01"],
    "body.a[1]": ['{"a":[1,Infinity]}'],
    "delaytime": ["5"],
    "payload": ["{}"],
}  # fmt: skip
DUE = ("delayTime", "expectDate", "delayLevel")


def malformed() -> Iterator[tuple[str, str]]:
    """The text of a message, and the field that its problem names."""
    yield '{"delayTime":1}', "topic"
    yield '{"topic":"orders"}', "delayTime"
    for field, values in INVALID.items():
        name = field.partition("[")[0].partition(".")[0]
        rest = ['"topic":"orders"'] * (name != "topic") + ['"delayTime":1000'] * (name not in DUE)
        for value in values:
            yield "{" + ",".join([*rest, f'"{name}":{value}']) + "}", field


NO_FIELD = [
    "", " ", "null", "[]", '"text"', "1", "{", "{" + GOOD + "} x", "{" + GOOD + ",}", "\ufeff{" + GOOD + "}",
    "[" * 100_000, '{"a":' * 100_000,
]  # fmt: skip


@pytest.mark.parametrize(
    "half", [r"\ud83d", r"\ud83dx", r"\ud83d\n", r"\ude00", r"\ude00\ud83d", r"\uD83D\ud83d\ude00", r"\ud83d\u0041"]
)
@pytest.mark.parametrize("text", ['"%s"', '{"a":["%s",1]}', r'"\\\ud83d\ude00%s"'])
async def test_half_an_emoji_is_named_as_that_wherever_it_stands(half: str, text: str, api: httpx2.AsyncClient) -> None:
    body = text.replace("%s", half)
    for message in (f'{{{GOOD},"body":{body}}}', f'{{"body":{body},{GOOD},"id":"some-long-id-behind-it"}}'):
        answer = await api.post("/v1/messages", content=message.encode(), headers=JSON)
        problem = assert_refused(answer)
        assert "half of a character such as an emoji" in problem["detail"]
        assert problem["field"].startswith("body")


async def test_an_invalid_field_is_refused_by_its_name(untouched: httpx2.AsyncClient) -> None:
    found = {}
    for text, field in malformed():
        problem = assert_refused(await untouched.post("/v1/messages", content=text, headers=JSON))
        if problem.get("field") != field or field not in problem["detail"]:
            found[text] = problem
    assert not found


async def test_a_body_that_is_no_message_is_refused(untouched: httpx2.AsyncClient) -> None:
    for text in NO_FIELD:
        problem = assert_refused(await untouched.post("/v1/messages", content=text, headers=JSON))
        assert "field" not in problem or text.startswith('{"a":'), problem


async def test_deep_nesting_is_accepted_or_refused_and_never_a_fault(api: httpx2.AsyncClient) -> None:
    for depth in (100, 500, 900, 950, 980, 990, 1_000, 2_000, 200_000):
        text = "{" + GOOD + f',"id":"deep-{depth}","body":' + "[" * depth + "]" * depth + "}"
        answer = await api.post("/v1/messages", content=text, headers=JSON)
        if depth <= 500:
            assert answer.status_code == 201
        elif depth >= 2_000:
            assert "nested" in assert_refused(answer)["detail"]
        assert answer.status_code in (201, 400)
        found = await api.get(f"/v1/messages/deep-{depth}")
        assert found.status_code == (200 if answer.status_code == 201 else 404)


async def test_bytes_that_are_no_utf_8_are_refused(untouched: httpx2.AsyncClient) -> None:
    for place in ('"body":"%s"', '"body":{"a":"%s"}', '"id":"%s"', '"%s":1'):
        text = ("{" + GOOD + "," + place % "~" + "}").encode().replace(b"~", b"\xff\xfe")
        problem = assert_refused(await untouched.post("/v1/messages", content=text, headers=JSON))
        assert "UTF-8" in problem["detail"]


async def test_what_a_target_can_never_take_is_refused_by_itself_in_a_batch(settings: Settings, asgi: Serving) -> None:
    routes = (
        '[{"name": "kafka", "match": "k*", "target": "kafka://k:9092"},'
        ' {"name": "rocket", "target": "rocketmq://r:8081"}]'
    )
    messages = [
        {"topic": "k.paid", "body": "", "delayTime": 1_000},
        {"topic": "k:paid", "body": "x", "delayTime": 1_000},
        {"topic": "orders", "body": "", "delayTime": 1_000},
        {"topic": "orders", "body": "x", "delayTime": 1_000, "tags": "a||b"},
        {"topic": "orders", "body": "x", "delayTime": 1_000, "tags": "a"},
    ]
    async with asgi(settings.replace(routes=routes)) as api:
        (_, *wrong, _) = [await api.post("/v1/messages", json=message) for message in messages]
        for answer, field in zip(wrong, ("topic", "body", "tags"), strict=True):
            assert assert_refused(answer)["field"] == field
        assert "'k:paid' is not a Kafka topic" in wrong[0].json()["detail"]
        answer = await api.post("/v1/messages:batch", json={"messages": messages})
    results = answer.json()["results"]
    assert [one["status"] for one in results] == [201, 400, 400, 400, 201]
    assert [one["problem"]["field"] for one in results[1:4]] == ["topic", "body", "tags"]


async def test_json_has_several_media_types(api: httpx2.AsyncClient) -> None:
    for media in ("application/json; charset=utf-8", "Application/JSON", "application/ld+json"):
        answer = await api.post("/v1/messages", content="{" + GOOD + "}", headers={"content-type": media})
        assert answer.status_code == 201
    for other in ("text/plain", "application/xml", "application/json+x"):
        answer = await api.post("/v1/messages", content="{" + GOOD + "}", headers={"content-type": other})
        assert assert_refused(answer, 415)["type"] == "urn:delayq:problem:unsupported"


async def test_what_has_no_path_is_not_found_and_a_query_that_is_no_text_is_refused(
    untouched: httpx2.AsyncClient,
) -> None:
    for path in ("/v1", "/v1/message", "/v1/messages/", "/v1/messages/a/b", "/v1/messages:bulk", "/v2/messages"):
        assert_refused(await untouched.get(path), 404)
    for query in ("key=%ff", "&".join(f"k{i}=1" for i in range(200))):
        assert_refused(await untouched.get(f"/v1/messages?{query}"))


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
