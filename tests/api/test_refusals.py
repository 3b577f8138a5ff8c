"""Bad input: the right status, the field named, nothing half done."""

from __future__ import annotations

import httpx2
import pytest

from delayq.config import Settings
from tests.api.conftest import Serving, assert_refused

JSON = {"content-type": "application/json"}
GOOD = '"topic":"orders","delayTime":1000'

#: What is sent, and the field that the answer names.
MALFORMED = [
    ('{"delayTime":1}', "topic"),
    ('{"topic":"","delayTime":1}', "topic"),
    ('{"topic":null,"delayTime":1}', "topic"),
    ('{"topic":1,"delayTime":1}', "topic"),
    ('{"topic":"two words","delayTime":1}', "topic"),
    ('{"topic":"delayq:x","delayTime":1}', "topic"),
    ('{"topic":"a{b}","delayTime":1}', "topic"),
    ('{"topic":"a*","delayTime":1}', "topic"),
    ('{"topic":"a\\r\\nb","delayTime":1}', "topic"),
    ('{"topic":"a\\u0000","delayTime":1}', "topic"),
    ('{"topic":"' + "a" * 256 + '","delayTime":1}', "topic"),
    ('{"topic":"orders"}', "delayTime"),
    ('{"topic":"orders","delayTime":null}', "delayTime"),
    ('{"topic":"orders","delayTime":1,"expectDate":1}', "delayTime"),
    ('{"topic":"orders","delayTime":1,"delayLevel":1}', "delayTime"),
    ('{"topic":"orders","delayTime":-1}', "delayTime"),
    ('{"topic":"orders","delayTime":1.0}', "delayTime"),
    ('{"topic":"orders","delayTime":1.5}', "delayTime"),
    ('{"topic":"orders","delayTime":1e3}', "delayTime"),
    ('{"topic":"orders","delayTime":1e400}', "delayTime"),
    ('{"topic":"orders","delayTime":NaN}', "delayTime"),
    ('{"topic":"orders","delayTime":Infinity}', "delayTime"),
    ('{"topic":"orders","delayTime":-Infinity}', "delayTime"),
    ('{"topic":"orders","delayTime":true}', "delayTime"),
    ('{"topic":"orders","delayTime":[1]}', "delayTime"),
    ('{"topic":"orders","delayTime":"soon"}', "delayTime"),
    ('{"topic":"orders","delayTime":"1000"}', "delayTime"),
    ('{"topic":"orders","delayTime":"-5s"}', "delayTime"),
    ('{"topic":"orders","delayTime":"4000d"}', "delayTime"),
    ('{"topic":"orders","delayTime":1152921504606846976}', "delayTime"),
    ('{"topic":"orders","delayTime":99999999999999999999999}', "delayTime"),
    ('{"topic":"orders","delayTime":' + "9" * 5000 + "}", "delayTime"),
    ('{"topic":"orders","expectDate":-1}', "expectDate"),
    ('{"topic":"orders","expectDate":false}', "expectDate"),
    ('{"topic":"orders","expectDate":1.5}', "expectDate"),
    ('{"topic":"orders","expectDate":"tomorrow"}', "expectDate"),
    ('{"topic":"orders","expectDate":"2030-01-01T00:00:00"}', "expectDate"),
    ('{"topic":"orders","expectDate":"2030-02-30T00:00:00Z"}', "expectDate"),
    ('{"topic":"orders","expectDate":"9999-12-31T23:59:59Z"}', "expectDate"),
    ('{"topic":"orders","expectDate":9007199254740993}', "expectDate"),
    ('{"topic":"orders","delayLevel":0}', "delayLevel"),
    ('{"topic":"orders","delayLevel":"1"}', "delayLevel"),
    ('{"topic":"orders","delayLevel":true}', "delayLevel"),
    ("{" + GOOD + ',"id":""}', "id"),
    ("{" + GOOD + ',"id":"a b"}', "id"),
    ("{" + GOOD + ',"id":"a\\r\\nb"}', "id"),
    ("{" + GOOD + ',"id":"a\\u0000"}', "id"),
    ("{" + GOOD + ',"id":"{1}"}', "id"),
    ("{" + GOOD + ',"id":"ü"}', "id"),
    ("{" + GOOD + ',"id":7}', "id"),
    ("{" + GOOD + ',"id":"' + "a" * 129 + '"}', "id"),
    ("{" + GOOD + ',"id":"' + "a" * 128 + '","orderingKey":"k"}', "id"),
    ("{" + GOOD + ',"id":"\\ud800"}', "id"),
    ("{" + GOOD + ',"id":"\\ud800 and more"}', "id"),
    ("{" + GOOD + ',"id":"\\udc00"}', "id"),
    ("{" + GOOD + ',"tags":"a\\nb"}', "tags"),
    ("{" + GOOD + ',"tags":["a"]}', "tags"),
    ("{" + GOOD + ',"tags":"' + "ü" * 128 + '"}', "tags"),
    ("{" + GOOD + ',"keys":"a"}', "keys"),
    ("{" + GOOD + ',"keys":[""]}', "keys"),
    ("{" + GOOD + ',"keys":["a b"]}', "keys"),
    ("{" + GOOD + ',"keys":["a\\u0000"]}', "keys"),
    ("{" + GOOD + ',"keys":["a\\r\\nb"]}', "keys"),
    ("{" + GOOD + ',"keys":["a","a"]}', "keys"),
    ("{" + GOOD + ',"keys":["a",1]}', "keys[1]"),
    ("{" + GOOD + ',"keys":["a","\\ud800"]}', "keys[1]"),
    ("{" + GOOD + ',"keys":[' + ",".join(f'"{i}"' for i in range(17)) + "]}", "keys"),
    ("{" + GOOD + ',"properties":[]}', "properties"),
    ("{" + GOOD + ',"properties":{"a":1}}', "properties[...]"),
    ("{" + GOOD + ',"properties":{"a":"b\\r\\nc"}}', "properties"),
    ("{" + GOOD + ',"properties":{"a\\nb":"c"}}', "properties"),
    ("{" + GOOD + ',"properties":{"":"c"}}', "properties"),
    ("{" + GOOD + ',"properties":{"a":"\\ud800"}}', "properties.a"),
    ("{" + GOOD + ',"properties":{"a":"' + "b" * 8193 + '"}}', "properties"),
    ("{" + GOOD + ',"orderingKey":"a\\u0000"}', "orderingKey"),
    ("{" + GOOD + ',"orderingKey":5}', "orderingKey"),
    ("{" + GOOD + ',"maxAttempts":0}', "maxAttempts"),
    ("{" + GOOD + ',"maxAttempts":true}', "maxAttempts"),
    ("{" + GOOD + ',"maxAttempts":1.5}', "maxAttempts"),
    ("{" + GOOD + ',"expireAfter":0}', "expireAfter"),
    ("{" + GOOD + ',"expireAfter":-5}', "expireAfter"),
    ("{" + GOOD + ',"expireAfter":"never"}', "expireAfter"),
    ("{" + GOOD + ',"bodyBase64":"!"}', "bodyBase64"),
    ("{" + GOOD + ',"bodyBase64":"YQ"}', "bodyBase64"),
    ("{" + GOOD + ',"bodyBase64":"YQ==","body":"a"}', "bodyBase64"),
    ("{" + GOOD + ',"body":NaN}', "body"),
    ("{" + GOOD + ',"body":{"a":[1,Infinity]}}', "body.a[1]"),
    ("{" + GOOD + ',"body":1e400}', "body"),
    ("{" + GOOD + ',"body":"\\ud800"}', "body"),
    ("{" + GOOD + ',"delaytime":5}', "delaytime"),
    ("{" + GOOD + ',"payload":{}}', "payload"),
    ("{" + GOOD + ',"body":nul}', "body"),
    ("{" + GOOD + ',"body":01}', "body"),
]
NO_FIELD = [
    "", " ", "null", "[]", '"text"', "1", "{", "{" + GOOD + "} x", "{" + GOOD + ",}", "\ufeff{" + GOOD + "}",
    "[" * 100_000, '{"a":' * 100_000,
]  # fmt: skip


@pytest.mark.parametrize(("text", "field"), MALFORMED, ids=[text[:70] for text, _ in MALFORMED])
async def test_a_wrong_field_is_refused_by_its_name(untouched: httpx2.AsyncClient, text: str, field: str) -> None:
    problem = assert_refused(await untouched.post("/v1/messages", content=text, headers=JSON))
    assert problem.get("field") == field, problem
    assert field in problem["detail"]


@pytest.mark.parametrize(("text", "field"), MALFORMED, ids=[text[:70] for text, _ in MALFORMED])
async def test_a_wrong_field_in_a_batch_is_refused_by_its_name(
    untouched: httpx2.AsyncClient, text: str, field: str
) -> None:
    answer = await untouched.post("/v1/messages:batch", content=f'{{"messages":[{text}]}}', headers=JSON)
    if answer.status_code == 200:
        (result,) = answer.json()["results"]
        assert (result["status"], result["problem"]["field"]) == (400, field)
    else:  # the text as a whole is no JSON
        assert assert_refused(answer)["field"] == f"messages[0].{field}"


@pytest.mark.parametrize("text", NO_FIELD, ids=lambda text: repr(text[:40]))
async def test_what_is_no_message_at_all_is_refused(untouched: httpx2.AsyncClient, text: str) -> None:
    problem = assert_refused(await untouched.post("/v1/messages", content=text, headers=JSON))
    assert "field" not in problem or text.startswith('{"a":'), problem


@pytest.mark.parametrize("depth", [100, 500, 900, 950, 980, 990, 1_000, 2_000, 200_000])
async def test_deep_nesting_is_taken_or_refused_and_never_a_fault(api: httpx2.AsyncClient, depth: int) -> None:
    text = "{" + GOOD + ',"id":"deep","body":' + "[" * depth + "]" * depth + "}"
    answer = await api.post("/v1/messages", content=text, headers=JSON)
    if depth <= 500:
        assert answer.status_code == 201
    elif depth >= 2_000:
        assert "nested" in assert_refused(answer)["detail"]
    assert answer.status_code in (201, 400)
    found = await api.get("/v1/messages/deep")
    assert found.status_code == (200 if answer.status_code == 201 else 404)


@pytest.mark.parametrize("place", ['"body":"%s"', '"body":{"a":"%s"}', '"id":"%s"', '"%s":1'])
async def test_bytes_that_are_no_utf_8_are_refused(untouched: httpx2.AsyncClient, place: str) -> None:
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
        assert "'k:paid' is no name for a Kafka topic" in wrong[0].json()["detail"]
        answer = await api.post("/v1/messages:batch", json={"messages": messages})
    results = answer.json()["results"]
    assert [one["status"] for one in results] == [201, 400, 400, 400, 201]
    assert [one["problem"]["field"] for one in results[1:4]] == ["topic", "body", "tags"]
