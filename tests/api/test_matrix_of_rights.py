"""What the key of one tenant learns and changes of another tenant's messages, by every operation and every way to name one.

There are two worlds. They differ only in the messages of the other tenant, which exist in one of them. The same calls get the
same answers in both, and change nothing of the other tenant's. The rows are checked against the table of operations, so a new
operation without rows fails the test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from api.routes import OPERATIONS
from delayq import Client, Message
from delayq.config import Settings
from delayq.domain.api_keys import SCOPES, Scope
from delayq.store import commands
from delayq.store.commands import Census, Tally
from delayq.store.keys import KEYS
from tests.api.conftest import Serving, Worker
from tests.support.hand_backs import next_id
from tests.support.keys import KeyFile
from tests.support.queues import EPOCH
from tests.support.servers import ServerUnderTest

AT: Final = 2_000_000_000_000
PAST: Final = 1_700_000_000_000
WHEN: Final = "2033-05-18T03:33:20Z"
#: The queues in which the other tenant has messages. The tenant under test uses the others.
OF_OTHER: Final = range(8)
#: Every topic that begins with 'a.' is of the other tenant. The topics that end in 'shared' have one stream.
ROUTES: Final = json.dumps([{"name": "shared", "match": "?.shared", "stream": "shared"}, {"name": "streams"}])

#: The other tenant's messages, a state each. `handed` was handed back, and `died` is a dead letter of its group.
IDS: Final = {
    state: f"a.{state}.{queue:04x}"
    for queue, state in enumerate(("scheduled", "due", "inFlight", "parked", "dead", "delivered", "cancelled", "discarded"))
} | {"handed": next_id("a.first", 1, "a.x", ".0000"), "died": "a.received:mail.0001"}  # fmt: skip
#: An id in each of these states, and one that nobody has used.
NAMED: Final = (*IDS.values(), "a.nobody.0002")

#: The keys under test. None of them has rights on topics of the other tenant.
API_KEYS: Final[Mapping[str, tuple[Mapping[str, Sequence[Scope]], str]]] = {
    "with ids": ({"b.*": SCOPES}, "b."),
    "without ids": ({"b.*": SCOPES}, ""),
    "of patterns": ({"b.?": SCOPES, "?b.*": ["read", "receive"], "c*": SCOPES, "b.shared": SCOPES, "?": SCOPES}, ""),
}


@dataclass(frozen=True)
class Row:
    """A call of an operation. `path` is set if the one of the operation has parameters or the call has a query."""

    path: str = ""
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def _ids(body: Mapping[str, Any] = {}) -> list[Row]:
    """Calls with many ids, and with each one alone."""
    return [
        Row(body={"ids": list(some), **body}) for some in (NAMED, *((id,) for id in NAMED), ("b.own.0008", IDS["dead"]))
    ]


def _keys(body: Mapping[str, Any] = {}) -> list[Row]:
    return [Row(body={"keys": [key], **body}) for key in ("k-common", "k-other", "delayq:from:other")]


def _each(path: str, body: Any = None) -> list[Row]:
    return [Row(path.format(id=id), body) for id in NAMED]


def _queries(path: str, *queries: str) -> list[Row]:
    return [Row(path + query) for query in ("", *queries)]


def _leases(verb: str, **fields: Any) -> list[Row]:
    """Leases of the other tenant, by each topic and group."""
    rows = []
    for topic in ("a.x", "a.shared", "b.shared", "b.x", "c"):
        for group in ("mail", "other"):
            messages = [
                {"id": "a.received.0001", "lease": "{lease}"},
                {"id": "a.received.0001", "lease": ".1-1.other-call"},
            ]
            rows += [
                Row(f"/v1/topics/{topic}:{verb}", {"group": group, "messages": [one], **fields}) for one in messages
            ]
    return rows


_TOPICS: Final = ("a.x", "a.*", "?.x", "*", "b.*", "a.shared")
_SEARCHES: Final = (
    *(f"?topic={topic}" for topic in _TOPICS), "?limit=1", "?idPrefix=a.", "?idPrefix=b.", "?tags=vip", "?property=color:red",
    "?key=k-common", "?key=k-other", "?key=delayq:from:other", f"?dueFrom={AT - 5_000}&dueTo={AT + 5_000}", "?state=scheduled",
    "?state=inFlight,parked,dead", "?key=k-other&state=cancelled,delivered",
)  # fmt: skip
_HANDED: Final = {"handBacks": 0, "body": "x", "delayTime": "1h"}

#: How the other tenant's messages are handed back: by the id, or by the first id.
_HANDED_AS: Final[Sequence[tuple[str, Mapping[str, Any]]]] = (
    *((id, {}) for id in NAMED),
    ("a.first.0000", {}),
    ("b.m", {"properties": {"delayq-origin": "a.first.0000"}}),
    ("b.m", {"handBacks": 99, "properties": {"delayq-origin": "a.received.0001"}}),
    ("b.n", {"keys": ["delayq:from:other"]}),
)
#: Operations without a parameter.
_ALONE: Final[Mapping[str, Sequence[Row]]] = {
    f"GET /v1/{name}": [Row()] for name in ("queues", "stats", "nodes", "routes", "status", "overview", "me")
}

#: By operation, the calls that name the other tenant's messages, topics, groups and leases in every way.
ROWS: Final[Mapping[str, Sequence[Row]]] = {
    "POST /v1/messages": [
        Row(body={"topic": topic, "id": id, "expectDate": WHEN, "keys": ["k-common"]})
        for topic, id in (("a.x", "b.new.0008"), ("b.x", "b.new.0008"), ("*", "b.new.0008"), ("a.shared", "b"))
    ],
    "POST /v1/messages:batch": [
        Row(body={"messages": [{"topic": topic, "id": f"b.batch-{topic}.0009", "expectDate": WHEN} for topic in ("a.x", "b.x")]})
    ],
    "GET /v1/messages/{id}": _each("/v1/messages/{id}") + _each("/v1/messages/{id}?explain=true")
    + [Row("/v1/messages/b.own.0008?explain=true"), Row("/v1/messages/b.due.000a?explain=true")],
    "DELETE /v1/messages/{id}": _each("/v1/messages/{id}"),
    "POST /v1/messages:cancel": _ids() + _keys(),
    "PATCH /v1/messages/{id}": _each("/v1/messages/{id}", {"delayTime": "3h"}) + _each("/v1/messages/{id}", {"expectDate": WHEN}),
    "POST /v1/messages/{id}:deliverNow": _each("/v1/messages/{id}:deliverNow", {"force": False})
    + _each("/v1/messages/{id}:deliverNow", {"force": True}),
    "POST /v1/messages:deliverNow": _ids() + _ids({"force": True}) + _keys() + _keys({"force": True}),
    "GET /v1/messages": _queries("/v1/messages", *_SEARCHES),
    "GET /v1/messages:count": _queries(
        "/v1/messages:count", *(f"?topic={topic}" for topic in _TOPICS), "?state=scheduled,dead", "?topic=b.*&tags=vip",
        f"?dueTo={AT + 5_000}",
    ),
    "GET /v1/forecast": _queries(
        "/v1/forecast", *(f"?topic={topic}&dueFrom={AT - 5_000}&dueTo={AT + 5_000}&step=1s" for topic in _TOPICS),
        f"?dueFrom={AT - 5_000}&dueTo={AT + 5_000}&step=1s",
    ),
    "GET /v1/dead-letters": _queries(
        "/v1/dead-letters", *(f"?topic={topic}" for topic in _TOPICS), "?order=newest", "?reason=secret", "?group=secret",
    ),
    "GET /v1/dead-letters:groups": _queries("/v1/dead-letters:groups", "?limit=1"),
    "POST /v1/dead-letters:redrive": _ids(),
    "POST /v1/dead-letters:discard": _ids(),
    "DELETE /v1/dead-letters/{id}": _each("/v1/dead-letters/{id}"),
    "POST /v1/topics:pause": [Row("/v1/topics:pause?wait=0", {"match": topic}) for topic in (*_TOPICS, "?.shared", "b.shared")],
    "POST /v1/topics:resume": [Row(body={"match": topic}) for topic in (*_TOPICS, "?.shared", "b.shared")],
    "GET /v1/topics": _queries("/v1/topics", *(f"?match={topic}" for topic in _TOPICS), "?paused=yes", "?pageToken=a.x"),
    "GET /v1/topics/{topic}": [Row(f"/v1/topics/{topic}") for topic in ("a.x", "a.shared", "b.shared", "b.x", "c")],
    "GET /v1/policies": [Row()],
    "GET /v1/policies/{name}": [Row(f"/v1/policies/{name}") for name in ("of-a", "nobody")],
    "PUT /v1/policies/{name}": [
        Row(f"/v1/policies/{name}", {"match": match, "window": 1_000})
        for name, match in (("of-a", "a.*"), ("of-a", "b.*"), ("new", "a.x"), ("new", "*"), ("new", "b.?"))
    ],
    "DELETE /v1/policies/{name}": [Row(f"/v1/policies/{name}") for name in ("of-a", "nobody")],
    "POST /v1/topics/{topic}:receive": [
        Row(f"/v1/topics/{topic}:receive", {"group": group, "lease": "12h", **more})
        for topic in ("a.x", "a.shared", "b.shared", "b.x", "b.none", "c")
        for group in ("mail", "new")
        for more in ({}, {"call": "other-call"}, {"tags": ["vip"]}, {"ack": ["{lease}"]}, {"wait": 1})
    ],
    "POST /v1/topics/{topic}:ack": _leases("ack"),
    "POST /v1/topics/{topic}:extend": _leases("extend") + _leases("extend", lease=0),
    "POST /v1/topics/{topic}:handBack": _leases("handBack"),
    "GET /v1/consumers": _queries("/v1/consumers", *(f"?match={topic}" for topic in _TOPICS), "?limit=1", "?pageToken=a.x/mail"),
    "DELETE /v1/topics/{topic}/groups/{group}": [
        Row(f"/v1/topics/{topic}/groups/{group}") for topic in ("a.x", "a.shared", "b.shared", "b.x") for group in ("mail", "g")
    ],
    "POST /v1/messages:handBack": [
        Row(body={"messages": [{"id": id, "topic": topic, **_HANDED, **more}]})
        for topic in ("a.x", "b.x")
        for id, more in _HANDED_AS
    ],
    "GET /v1/audit": _queries(
        "/v1/audit", *(f"?topic={topic}" for topic in _TOPICS), *(f"?id={id}" for id in NAMED), "?key=k-common", "?key=k-other",
        "?actor=other", "?action=cancel", "?limit=1",
    ),
    **_ALONE,
    "GET /livez": [Row()],
    "GET /readyz": [Row()],
    "GET /metrics": [Row()],
    "POST /v1/dev:advance": [Row(body={"time": "1h"})],
}  # fmt: skip


def test_every_operation_has_rows() -> None:
    assert ROWS.keys() == {f"{one.method} {one.path}" for one in OPERATIONS}
    for one in OPERATIONS:
        unused = [name for name in one.query if name not in ("order", "limit", "pageToken", "explain", "wait", "to")]
        asked = " ".join(row.path for row in ROWS[f"{one.method} {one.path}"])
        assert [name for name in unused if f"{name}=" not in asked] in ([], ["dueFrom"], ["from"]), one.path


class World:
    """A Redis with the messages of the tenant under test, and perhaps with those of the other one."""

    def __init__(self, server: ServerUnderTest, settings: Settings, keys: KeyFile) -> None:
        self.server = server
        self.settings = settings
        self.keys = keys
        self.worker = Worker(server.url)
        self.has_other = False
        self.lease = ".1-1.none"

    def close(self) -> None:
        self.worker.store.close()

    def headers(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys.texts[name]}"}

    def begin(self) -> None:
        """What both worlds have: nodes, policies, and messages of the tenant under test in several states."""
        self.server.flush()
        with Client(settings=self.settings) as client:
            client.schedule(Message(topic="b.x", id="b.own.0008", keys=("k-common",), expect_date=AT, tags="vip"))
            for id in ("b.dead.0009", "b.due.000a"):  # if both have the same ms, they are in the order of their ids
                client.schedule(Message(topic="b.x", id=id, keys=("k-common",), expect_date=PAST))
                if id == "b.dead.0009":
                    self.worker.bury(id, "own reason")
            values = {"policy:of-a": '{"match":"a.*","rate":5}', "pause:a.paused": f'{{"since":{AT}}}'}
            client.store.run(commands.set_policies(KEYS, [commands.Change(*one) for one in values.items()]))
            now = client.store.run(commands.redis_now())
            line = {
                "node": "node-1", "since": now, "seen": now + 600_000, "address": "h:1", "policies": "9999999999.0000000000",
                "held": {}, "queues": {str(number): {"epoch": EPOCH, "since": now} for number in range(16)},
            }  # fmt: skip
            client.store.run(commands.publish_node(KEYS, "node-1", json.dumps(line).encode()))
        self.take_census(8, "b.x", "scheduled")
        self.take_census(9, "b.x", "dead")
        self.take_census(10, "b.x", "due")
        self.server.admin.xadd("b.x", {"id": "b.received", "topic": "b.x", "body": "own", "due": "1", "attempt": "1"})

    async def add_other(self, api: httpx2.AsyncClient) -> None:
        """The messages of the other tenant."""
        self.has_other = True

        async def ask(method: str, path: str, body: Any = None, name: str = "other") -> Any:
            answer = await api.request(method, path, json=body, headers=self.headers(name))
            assert answer.status_code < 300, (path, answer.text)
            return answer.json()

        for state, id in list(IDS.items())[:8]:
            when = {"expectDate": WHEN if state in ("scheduled", "cancelled") else PAST}
            more = {"keys": ["k-common", "k-other"], "tags": "vip", "properties": {"color": "red"}, "body": "secret"}
            await ask("POST", "/v1/messages", {"topic": "a.x", "id": id, **when, **more})
            if state == "cancelled":
                await ask("DELETE", f"/v1/messages/{id}")
            elif state in ("dead", "discarded"):
                self.worker.bury(id, "secret reason")
            else:
                self.worker.bring_into(state, id)
            if state == "discarded":
                await ask("DELETE", f"/v1/dead-letters/{id}")
        handed = {"id": "a.first.0000", "topic": "a.x", "handBacks": 0, "body": "secret", "delayTime": "1h"}
        (result,) = (await ask("POST", "/v1/messages:handBack", {"messages": [handed]}))["results"]
        assert result["id"] == IDS["handed"]
        self.append("a.received.0001", "a.x", "a.x")
        self.append("a.waits.0001", "a.x", "a.x")
        for topic, stream in (("a.shared", "shared"), ("a.shared", "shared")):
            self.append("a.in-shared.0002", topic, stream)
        for topic, name in (("a.x", "other"), ("a.shared", "boss")):
            call = {"group": "mail", "max": 1, "call": "other-call"}
            (got,) = (await ask("POST", f"/v1/topics/{topic}:receive", call, name))["messages"]
            self.lease = got["lease"] if topic == "a.x" else self.lease
        for queue, state in enumerate(("scheduled", "due", "inFlight", "parked", "dead")):
            self.take_census(queue, "a.x", state)
        content = {"topic": "a.x", "id": IDS["died"], "expectDate": PAST, "properties": {"delayq-group": "mail"}}
        await ask("POST", "/v1/messages", content)
        self.worker.bury(IDS["died"], "secret reason of a consumer")

    def take_census(self, queue: int, topic: str, state: str) -> None:
        """Count one message of a topic, as the owner of its queue does now and then."""
        keys = KEYS.queue(queue)
        self.worker.store.run(commands.claim(keys, EPOCH))
        began = self.worker.store.run(commands.redis_now()) - 60_000
        self.worker.store.run(commands.keep_census(keys, EPOCH, Census(began, {topic: {state: Tally(1, 100, [1], 1)}})))

    def append(self, id: str, topic: str, stream: str) -> None:
        entry = {
            "id": id,
            "topic": topic,
            "tags": "vip",
            "keys": "k-common",
            "body": "secret",
            "due": "1",
            "attempt": "1",
        }
        self.server.admin.xadd(stream, entry)

    def of_other(self) -> list[bytes]:
        """Every key of Redis with messages of the other tenant, and a digest of its value."""
        found: list[bytes] = self.server.admin.eval(_DIGESTS, 0, len(OF_OTHER))
        return found


#: Policies and pauses are in the state of each queue, whoever made them.
_DIGESTS: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local queue = tonumber(string.match(key, '^delayq:{(%d+)}') or '')
  if queue and queue < tonumber(ARGV[1]) or string.find(key, 'a%.') or string.find(key, 'shared') then
    local value
    if string.find(key, ':state$') then
      local fields, kept = redis.call('HGETALL', key), {}
      for at = 1, #fields, 2 do
        if fields[at] ~= 'policies' and fields[at] ~= 'paused' and fields[at] ~= 'applied' then
          kept[#kept + 1] = fields[at] .. '=' .. fields[at + 1]
        end
      end
      table.sort(kept)
      value = table.concat(kept, ' ')
    else
      value = redis.sha1hex(redis.call('DUMP', key))
    end
    found[#found + 1] = key .. ' ' .. value
  end
end
table.sort(found)
return found
"""
_MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b\d{13}(-\d+)?\b"), "MS"),
    (re.compile(r'"nextPageToken":"[^"]+"'), '"nextPageToken":"TOKEN"'),
    (re.compile(r'"lease":"[^"]+"'), '"lease":"LEASE"'),
    (re.compile(r'"lost":\["[^"]+"\]'), '"lost":["LEASE"]'),
    (re.compile(r"\b(\d+) (ms|s)\b"), "SOME TIME"),
    (re.compile(r'"(latenessMs|seconds|age\w*|took\w*)":[\d.]+'), r'"\1":0'),
)


def masked(text: str) -> str:
    """The text of an answer without times and random texts, which differ between two runs."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


#: The status, the text and the names of the headers of an answer.
Told = tuple[int, str, list[str]]
#: Only these calls learn that the other tenant has an id: it is taken, and nobody else may give it.
TAKEN: Final = [Row(body={"topic": "b.x", "id": id, "expectDate": WHEN}) for id in IDS.values()]


def rows(*, is_shared: bool) -> Iterator[tuple[str, str, Row]]:
    """Each operation, the path of a call, and the call; those that change nothing of their own first.

    If the tenants share the space of ids, any of them may give every id, and hands back any as a message of its own.
    """
    more = (
        {"POST /v1/messages:handBack": (), "POST /v1/messages": (*ROWS["POST /v1/messages"], *TAKEN)}
        if is_shared
        else {}
    )
    given: dict[str, Sequence[Row]] = dict(ROWS) | more
    for operation, some in sorted(
        given.items(), key=lambda one: (not one[0].startswith("GET"), one[0] == "POST /v1/messages")
    ):
        for row in some:
            yield operation, row.path or operation.partition(" ")[2], row


async def answers_in(world: World, api: httpx2.AsyncClient, name: str, *, is_shared: bool) -> dict[str, Told]:
    """The answers to all calls of a key. Each of them leaves what the other tenant has as it is."""
    found: dict[str, Told] = {}
    before = world.of_other()
    for number, (operation, path, row) in enumerate(rows(is_shared=is_shared)):
        body = None if row.body is None else json.loads(json.dumps(row.body).replace("{lease}", world.lease))
        method = operation.partition(" ")[0]
        answer = await api.request(method, path, json=body, headers=world.headers(name) | dict(row.headers))
        kept = sorted(one for one in answer.headers if one not in ("content-length",))
        call = f"{number} {operation} {path} {json.dumps(row.body)}"
        found[call] = answer.status_code, masked(answer.text), kept
        if world.has_other:
            assert world.of_other() == before, (call, answer.text)
    return found


@pytest.mark.parametrize(
    ("name", "other_ids"),
    [*((name, "a.") for name in API_KEYS), ("without ids", "")],
    ids=[*API_KEYS, "of one space of ids"],
)
async def test_a_key_learns_and_changes_nothing_of_another_tenant(
    settings: Settings, asgi: Serving, valkey: ServerUnderTest, tmp_path: Path, name: str, other_ids: str
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    for one, (scopes, ids) in API_KEYS.items():
        keys.add(one.replace(" ", "-"), scopes, ids=ids)
    keys.add("other", {"a.*": SCOPES}, ids=other_ids, audit=True)
    keys.add("boss")
    world = World(valkey, keys.settings(settings).replace(routes=ROUTES), keys)
    answers = []
    for has_other in (False, True):
        world.begin()
        async with asgi(world.settings) as api:
            if has_other:
                await world.add_other(api)
            answers.append(await answers_in(world, api, name.replace(" ", "-"), is_shared=not other_ids))
    world.close()
    without, with_other = answers
    differences = {call: (without[call], with_other[call]) for call in without if without[call] != with_other[call]}
    taken = {call for call in differences if any(json.dumps(row.body) in call for row in TAKEN)}
    assert len(taken) == (0 if other_ids else len(TAKEN))
    assert {with_other[call][0] for call in taken} <= {409}
    assert not {call: told for call, told in differences.items() if call not in taken}
