"""What the client of the HTTP API makes of answers that no delayq has written: each call names the URL, at once."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from delayq import ConfigError, Filter, Message, Policy, http
from delayq.client.consuming.entries import Leased
from delayq.received import Received
from tests.http.conftest import Told

MESSAGE = Message(topic="t", id="a", delay_time="1h")
LEASED = Leased(id="a", topic="t", group="g", lease=".1-1.x", body=b"", due=1)
RECEIVED = Received(id="a", topic="t", due=1, body=b"")

#: Every call of the client that sends a request.
CALLS: dict[str, Callable[[Any], Any]] = {
    "ack": lambda client: client.ack(LEASED),
    "advance": lambda client: client.advance("1h"),
    "arriving": lambda client: client.arriving("t"),
    "audit": lambda client: client.audit(),
    "cancel": lambda client: client.cancel("a"),
    "cancel_by_key": lambda client: client.cancel_by_key("k"),
    "cancel_many": lambda client: client.cancel_many(["a", "b"]),
    "consumers": lambda client: client.consumers(),
    "count": lambda client: client.count(),
    "dead_groups": lambda client: client.dead_groups(),
    "dead_letters": lambda client: client.dead_letters(),
    "delete_group": lambda client: client.delete_group("t", "g"),
    "delete_policy": lambda client: client.delete_policy("p"),
    "deliver_now": lambda client: client.deliver_now("a"),
    "deliver_now_by_key": lambda client: client.deliver_now_by_key("k"),
    "deliver_now_many": lambda client: client.deliver_now_many(["a"]),
    "discard": lambda client: client.discard("a"),
    "discard_many": lambda client: client.discard_many(["a"]),
    "explain": lambda client: client.explain(LEASED),
    "extend": lambda client: client.extend(LEASED),
    "extend_many": lambda client: client.extend_many([LEASED]),
    "find": lambda client: client.find("k"),
    "forecast": lambda client: client.forecast(0, 1_000, 1_000),
    "get": lambda client: client.get("a"),
    "get_many": lambda client: client.get_many(["a"]),
    "hand_back": lambda client: client.hand_back(LEASED),
    "hand_back of another target": lambda client: client.hand_back(RECEIVED),
    "me": lambda client: client.me(),
    "nodes": lambda client: client.nodes(),
    "overview": lambda client: client.overview(),
    "pause": lambda client: client.pause("t"),
    "policies": lambda client: client.policies(),
    "policy": lambda client: client.policy("p"),
    "put_policy": lambda client: client.put_policy(Policy(name="p", match="t")),
    "queues": lambda client: client.queues(),
    "receive": lambda client: client.receive("t", group="g"),
    "redrive": lambda client: client.redrive(["a"]),
    "reschedule": lambda client: client.reschedule("a", delay_time="1h"),
    "resume": lambda client: client.resume("t"),
    "routes": lambda client: client.routes(),
    "schedule": lambda client: client.schedule(MESSAGE),
    "schedule_many": lambda client: client.schedule_many([MESSAGE]),
    "search": lambda client: client.search(Filter(topic="t")),
    "stats": lambda client: client.stats(),
    "status": lambda client: client.status(),
    "topic": lambda client: client.topic("t"),
    "topics": lambda client: client.topics(),
}
#: What sends no request.
SILENT = {"close", "consume", "redis_now"}


def said(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


JSON = "content-type: application/json"
NOT_DELAYQ = {
    "HTML": said(200, b"<html>please log in</html>", "content-type: text/html"),
    "HTML without a type": said(200, b"<html>please log in</html>"),
    "an empty object": said(200, b"{}", JSON),
    "a list": said(200, b"[]", JSON),
    "a text": said(200, b'"ok"', JSON),
    "null": said(200, b"null", JSON),
    "a number": said(201, b"1", JSON),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "nothing": said(200, b"", JSON),
    "JSON that is cut off": said(200, b'{"messages": [{"id"', JSON),
    "JSON that is nested too deeply": said(200, b"[" * 100_000, JSON),
    "values of other types": said(200, b'{"id": 5, "queue": "x", "state": "scheduled", "dueMs": "y"}', JSON),
    "a refusal that is nested too deeply": said(400, b'{"a":' * 100_000, JSON),
    "bytes that are not UTF-8": said(200, b'{"id": "\xff"}', JSON),
    "another content type": said(200, b'{"count": 1}', "content-type: text/plain"),
    "a redirect": said(301, b"", "location: https://login.example/t?next=1"),
    "a redirect with a body": said(308, b"{}", JSON, "location: /login"),
    "a redirect to nowhere": said(302, b""),
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "a refusal of another service": said(403, b"<html>", "content-type: text/html"),
    "a problem of another service": said(
        404, json.dumps({"type": "about:blank", "status": 404, "detail": "no"}).encode(), JSON
    ),
    "another path of an API": said(
        404,
        json.dumps({"type": "urn:delayq:problem:not-found", "status": 404, "detail": "Unknown path."}).encode(),
        JSON,
    ),
}


def test_every_call_is_in_the_table() -> None:
    calls = {name for name, _ in inspect.getmembers(http.Client, inspect.isfunction) if not name.startswith("_")}
    assert calls - SILENT == {name.partition(" ")[0] for name in CALLS}


@pytest.mark.parametrize("given", NOT_DELAYQ.values(), ids=NOT_DELAYQ)
def test_every_call_names_the_url_of_what_is_not_delayq_and_sends_nothing_more(
    told: Told, caller: Any, given: bytes
) -> None:
    for name, call in CALLS.items():
        told.answers, told.requests = [given], []
        with pytest.raises(ConfigError) as caught:
            call(caller)
        text = str(caught.value)
        assert told.url in text, name
        assert text.endswith("is this the URL of its API?"), name
        assert len(told.requests) == 1, name


def test_an_answer_about_another_message_is_refused_and_one_with_a_new_state_is_not(told: Told, caller: Any) -> None:
    state = {"topic": "t", "queue": 1, "dueTime": None, "state": "of a later version", "attempts": 0, "message": None}
    state |= dict.fromkeys(("endedTime", "reason", "nextProbeTime"))
    for call in (CALLS["get"], CALLS["schedule"]):
        told.answers = [said(200, json.dumps({"id": "other", "dueMs": 1, **state}).encode(), JSON)]
        with pytest.raises(ConfigError, match="is this the URL of its API"):
            call(caller)
    told.answers = [said(200, json.dumps({"id": "a.0a1b", "dueMs": 1, **state}).encode(), JSON)] * 2
    assert caller.schedule(MESSAGE).id == "a.0a1b"
    assert (found := caller.get("a")).id == "a.0a1b"
    assert found.state == state["state"]


def test_the_sentences_name_the_status_and_the_target_of_a_redirect(told: Told) -> None:
    sentences = []
    for given in ("HTML", "a refusal of another service", "a redirect"):
        told.answers = [NOT_DELAYQ[given]]
        with http.Client(told.url) as client, pytest.raises(ConfigError) as caught:
            client.get("a")
        sentences.append(str(caught.value).replace(told.url, "URL"))
    assert sentences == [
        "URL answered 200 without an answer of delayq: is this the URL of its API?",
        "URL answered 403 without a problem of delayq: is this the URL of its API?",
        "URL answered 301, a redirect to 'https://login.example/t?next=1', which delayq does not follow: "
        "is this the URL of its API?",
    ]
