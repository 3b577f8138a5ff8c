"""Every operation of the API and every command: a call that succeeds, calls that are invalid, and the right that it needs.

The tests of the API and of the command line derive their cases from this one table, so that a row is written once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delayq import Client, Message
from delayq.store import commands
from delayq.store.keys import KEYS
from tests.support.queues import EPOCH, taken

AT: Final = 2_000_000_000_000
#: Durations and dates that no operation takes.
LONG: Final = "9" * 5_000

#: A query (text), or a body (anything else), or a path and a body, and the field that the problem names.
Invalid = tuple[Any, str]
#: The status for a key with every other right on the topic, and for a key with every right on another topic.
Refusals = tuple[int | list[int], int | list[int]]
FORBIDDEN: Final[Refusals] = (403, 403)
#: As if there were no such message.
UNSEEN: Final[Refusals] = (403, 404)


@dataclass(frozen=True)
class Operation:
    """One operation: the call of the API, the command that does the same, and the right that both describe.

    `path` is a valid path, if the one in `call` has a parameter or needs a query. `words` is a valid command, as in
    a shell. `refused` are invalid commands with the beginning of the sentence that each ends with.
    """

    call: str = ""
    path: str = ""
    body: Any = None
    status: int = 200
    answer: Mapping[str, Any] | None = None
    invalid: Sequence[Invalid] = ()
    right: str = "read"
    without: Refusals = FORBIDDEN
    #: Whether the answer needs Redis.
    redis: bool = True
    words: str = ""
    refused: Sequence[tuple[str, str]] = ()
    #: Whether `--json` prints the answer of the API.
    same: bool = False

    @property
    def method(self) -> str:
        return self.call.partition(" ")[0]

    @property
    def url(self) -> str:
        return self.path or self.call.partition(" ")[2]


def fill(url: str) -> None:
    """What the valid calls need: a message `m`, a dead letter `d`, a policy `p`, a pause, a group `mail`, two nodes."""
    with Client(url) as client:
        client.schedule(Message(topic="orders.a", id="m", keys=("k",), expect_date=AT, body={"n": 1}, tags="vip"))
        client.schedule(Message(topic="orders.a", id="d", delay_time=0))
        queue = client.context().layouts.place("d")
        assert queue is not None
        keys = KEYS.queue(queue)
        (one,) = taken(client.store.run(commands.pull(keys, EPOCH, offset=0, room=1)))
        assert client.store.run(commands.bury(keys, EPOCH, [(one, 1, "größer \x1b[31m")])) == ["ok"]
        values = {"policy:p": '{"match":"orders.*","window":1000}', "pause:mail": f'{{"since":{AT}}}'}
        client.store.run(commands.set_policies(KEYS, [commands.Change(*one) for one in values.items()]))
        group = commands.GroupRecord(topic="orders.a", group="mail", stream="orders.a")
        client.store.run(commands.record_group(KEYS, group))
        now = client.store.run(commands.redis_now())
        acts = {"policies": "9999999999.0000000000", "held": {}}
        # The line of a live node lies ahead, so that it stays live however long a test takes.
        for node, age, queues in (("node-1", -600_000, range(16)), ("node-2", 20_000, range(3))):
            owned = {str(number): {"epoch": EPOCH, "since": now - 60_000} for number in queues}
            line = {"node": node, "since": now - 3_600_000, "seen": now - age, "queues": owned, "address": "h:1"} | acts
            client.store.run(commands.publish_node(KEYS, node, json.dumps(line).encode()))


def _due() -> list[Invalid]:
    """Due times that make no sense, for what needs one."""
    return [
        ({}, "delayTime"), ({"delayTime": 1, "delayLevel": 1}, "delayTime"), ({"delayTime": -1}, "delayTime"),
        ({"delayTime": True}, "delayTime"), ({"delayTime": "soon"}, "delayTime"), ({"expectDate": "tomorrow"}, "expectDate"),
        ({"expectDate": 2**60}, "expectDate"), ({"delayLevel": 0}, "delayLevel"), ({"topic": "other"}, "topic"),
    ]  # fmt: skip


_IDS_OR_KEYS: Final[Sequence[Invalid]] = (
    ({}, "ids"), ({"ids": None, "keys": None}, "ids"), ({"ids": [], "keys": []}, "ids"), ({"ids": "a"}, "ids"),
    ({"ids": [1]}, "ids[0]"), ({"keys": [None]}, "keys[0]"), ({"id": ["a"]}, "id"), ({"ids": ["a"] * 1_001}, "ids"),
    ({"keys": ["a"] * 101}, "keys"), ({"ids": ["a"], "keys": ["b"]}, "ids"),
)  # fmt: skip
_LETTERS: Final[Sequence[Invalid]] = (
    ({}, "ids"),
    ({"ids": "a"}, "ids"),
    ({"ids": [None]}, "ids[0]"),
    ({"id": 1}, "id"),
)
_RATES: Final = ("1e400", "NaN", "Infinity", "-1", '"5"', "true", "0")
WHEN: Final = "--delay 1h"

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "POST /v1/messages", "", {"topic": "orders.a", "delayTime": 3_600_000, "id": "new"}, 201, {"id": "new"},
        right="schedule",
        invalid=[({"topic": "two words", "delayTime": 1}, "topic")],
        words="schedule orders.a x --delay 1h --id new",
        refused=[
            ("schedule", "missing argument 'TOPIC'"),
            ("schedule t --delay", "option '--delay' requires an argument"),
            ("schedule t x", "the due time needs exactly one of --delay, --at and --level"),
            ("schedule t x --delay soon", "--delay: use a duration such as '30m'"),
            ("schedule t x --at tomorrow", "--at: use a time such as"),
            ("schedule t x --at 9999999999999", "--at: must be between"),
            ("schedule t x --level two", "invalid value for '--level'"),
            ("schedule t x --at 2000000000000 --window 2d", "--window: "),
            ("schedule t x --delay 30", "--delay: 30 has no unit; write 30s or 30ms"),
            ("schedule t x --at 30", "--at: 30 is before 2001"),
            (f"schedule 'a topic' x {WHEN}", "TOPIC: must be 1 to 255 characters"),
            (f"schedule t x {WHEN} --id a/b", "--id: must be 1 to 128 characters"),
            (f"schedule t x {WHEN} --key=", "--key: a key must not be empty"),
            (f"schedule t x {WHEN} --property a", "--property: use name=value, not 'a'"),
            (f"schedule t x {WHEN} --property a=1 --property a=2", "--property: "),
            (f"schedule t x {WHEN} --max-attempts 0", "--max-attempts: must be between 1"),
            (f"schedule t x {WHEN} --expire-after never", "--expire-after: use"),
            (f"schedule t x --body-file - {WHEN}", "the body is given twice; use BODY or --body-file"),
            (f"schedule t --body-file /no/such {WHEN}", "--body-file: cannot read /no/such: No such"),
            (f"schedule t --body-file / {WHEN}", "--body-file: cannot read /: Is a directory"),
            (f"schedule t {{ --json-body {WHEN}", "BODY: is not a JSON value (the text ends too early)"),
            (f"schedule t '\"\\ud83d\"' --json-body {WHEN}", "BODY: is not a JSON value (a lone surrogate at byte 1:"),
            (f"schedule t {'[' * 100_000} --json-body {WHEN}", "BODY: is not a JSON"),
            (f"schedule t \udcff {WHEN}", "an argument is not UTF-8"),
        ],
    ),
    Operation(
        "POST /v1/messages:batch", "", {"messages": [{"topic": "orders.a", "delayTime": 1}]},
        right="schedule", without=([403], [403]),
        invalid=[
            ({}, "messages"), ({"messages": None}, "messages"), ({"messages": {}}, "messages"),
            ({"messages": [], "x": 1}, "x"), ({"messages": [{}] * 1_001}, "messages"),
        ],
    ),
    Operation(
        "GET /v1/messages/{id}", "/v1/messages/m", answer={"id": "m", "dueMs": AT, "state": "scheduled"}, without=UNSEEN,
        invalid=[
            ("/v1/messages/a%20b", "id"), ("/v1/messages/a%ff", "id"), ("/v1/messages/" + "a" * 129, "id"),
            ("?x=1", "x"), ("?explain=perhaps", "explain"),
        ],
        words="get m", same=True,
        refused=[
            ("get", "missing argument 'ID'"), ("get a/b", "id: must be 1 to 128 characters"),
            ("get a b", "got unexpected extra argument"),
        ],
    ),
    Operation(
        "DELETE /v1/messages/{id}", "/v1/messages/m", answer={"id": "m", "result": "cancelled"}, right="cancel",
        without=UNSEEN, invalid=[("/v1/messages/a%20b", "id")],
        words="cancel m",
        refused=[
            ("cancel", "no message is selected"), ("cancel a --key k", "no message is selected"),
            ("cancel --key=", "--key: a key must not be empty"),
            (f"cancel a --reason {'x' * 201}", "--reason: must be a line of at most 200"),
        ],
    ),
    Operation(
        "POST /v1/messages:cancel", "", {"ids": ["m"]}, right="cancel", without=([403], [404]), invalid=_IDS_OR_KEYS,
        words="cancel --key k",
    ),
    Operation(
        "PATCH /v1/messages/{id}", "/v1/messages/m", {"delayTime": "2h"}, answer={"state": "scheduled"}, right="cancel",
        without=UNSEEN, invalid=_due(),
        words="reschedule m --delay 2h",
        refused=[("reschedule a", "the due time needs exactly one of")],
    ),
    Operation(
        "POST /v1/messages/{id}:deliverNow", "/v1/messages/m:deliverNow", {}, answer={"state": "scheduled"},
        right="cancel", without=UNSEEN,
        invalid=[({"force": "yes"}, "force"), ({"delayTime": 5}, "delayTime")],
        words="deliver-now m",
        refused=[
            ("deliver-now --key=", "--key: a key must not be empty"), ("deliver-now a --key b", "no message is selected"),
        ],
    ),
    Operation(
        "POST /v1/messages:deliverNow", "", {"ids": ["m"]}, right="cancel", without=([403], [404]),
        invalid=[*_IDS_OR_KEYS, ({"force": True}, "ids")],
        words="deliver-now --key k",
    ),
    Operation(
        "GET /v1/messages", "/v1/messages?topic=orders.a",
        invalid=[
            ("?topic=a%5Bb%5D", "topic"), ("?topic=", "topic"), ("?state=lost", "state"), ("?dueFrom=tomorrow", "dueFrom"),
            ("?dueFrom=2&dueTo=1", "dueTo"), ("?property=run", "property"), ("?idPrefix=a%20b", "idPrefix"),
            ("?limit=0", "limit"), ("?pageToken=abc", "pageToken"), ("?key=a&pageToken=b", "pageToken"), ("?key=", "key"),
            ("?key=a%20b", "key"), ("?key=a%0d%0ab", "key"), ("?key=a&key=b", "key"), ("?keys=a", "keys"),
            ("?key=a&limit=0", "limit"), ("?order=topic", "order"),
        ],
        words="search --topic orders.a", same=True,
        refused=[
            ("search --state lost", "--state: 'lost' is not one of"), ("search --topic a[b]", "--topic: must be 1 to 255"),
            ("search --due-from soon", "--due-from: use a time"),
            ("search --due-from 2s --due-to 1s", "--due-to: must be later than --due-from"),
            ("search --property run", "--property: use name=value"), ("search --topic=", "--topic: is empty"),
            ("search --key= --limit 3", "--key: a key must not be empty"), ("search --tags=", "--tags: is empty"),
            ("search --key k --page-token x", "--page-token: is not a token"), ("search --id-prefix=", "--id-prefix: is empty"),
            ("search --page-token x", "--page-token: is not a token"),
            ("search --key 'a b'", "--key: a key must not be empty, or contain white space"),
        ],
    ),
    Operation(
        "GET /v1/messages:count", "/v1/messages:count?topic=orders.a",
        invalid=[("?tags=a", "tags"), ("?state=lost", "state")],
        words="count --topic orders.a", refused=[("count --state lost", "--state: ")],
    ),
    Operation(
        "GET /v1/forecast", f"/v1/forecast?topic=orders.a&dueFrom={AT}",
        invalid=[
            ("?dueFrom=2&dueTo=1", "dueTo"), ("?step=0", "step"), ("?step=1s", "step"), ("?step=often", "step"),
            ("?topic=%5B", "topic"),
        ],
        words=f"forecast --due-from {AT}", refused=[("forecast --step often", "--step: ")],
    ),
    Operation(
        "GET /v1/dead-letters", "/v1/dead-letters?topic=orders.a",
        invalid=[
            ("?limit=0", "limit"), ("?limit=1001", "limit"), ("?limit=1.0", "limit"), ("?limit=%D9%A3", "limit"),
            ("?limit=-1", "limit"), (f"?limit={LONG}", "limit"), ("?pageToken=x", "pageToken"), ("?pageToken=", "pageToken"),
            ("?pageToken=%C3%BC", "pageToken"), ("?page=2", "page"), ("?order=random", "order"), ("?from=yesterday", "from"),
            ("?until=2030-01-01T00:00:00", "until"), ("?until=" + "9" * 20, "until"),
        ],
        words="dead-letters list --topic orders.a", same=True,
        refused=[
            ("dead-letters", "no command given"), ("dead-letters list --limit 0", "invalid value for '--limit'"),
            ("dead-letters list --page-token zz", "--page-token: is not a token"),
            ("dead-letters list --from soon", "--from: use a time such as"),
        ],
    ),
    Operation(
        "GET /v1/dead-letters:groups", invalid=[("?limit=0", "limit")], without=(200, 200), words="dead-letters groups", same=True
    ),
    Operation(
        "POST /v1/dead-letters:redrive", "", {"ids": ["d"]}, right="admin", without=([403], [409]), invalid=_LETTERS,
        words="dead-letters redrive d",
        refused=[
            ("dead-letters redrive", "no message is selected; give ids or --all"),
            ("dead-letters redrive a --all", "no message is selected; give ids or --all"),
        ],
    ),
    Operation(
        "POST /v1/dead-letters:discard", "", {"ids": ["d"]}, right="admin", without=([403], [409]), invalid=_LETTERS,
        words="dead-letters discard d", refused=[("dead-letters discard", "no dead letter is selected")],
    ),
    Operation(
        "DELETE /v1/dead-letters/{id}", "/v1/dead-letters/d", answer={"id": "d", "result": "discarded"}, right="admin",
        without=UNSEEN, invalid=[("/v1/dead-letters/a%20b", "id")],
    ),
    Operation(
        "POST /v1/topics:pause", "", {"match": "orders.a"}, answer={"state": "paused", "version": 2}, right="admin",
        invalid=[
            ({"match": "a b"}, "match"), ({"match": "a", "until": "2020-01-01T00:00:00Z"}, "until"),
            ({"match": "a", "until": "soon"}, "until"), ({"match": "a", "why": "x"}, "why"), ({"reason": "x"}, "match"),
            ({"match": "a", "until": "2999-01-01T00:00:00Z"}, "until"), ({"match": "a", "until": 1.5}, "until"),
            ({"match": "a" * 256}, "match"), ({"match": "a", "reason": "x" * 201}, "reason"), ("?wait=2m", "wait"),
            ("?wait=-1", "wait"), ("?wait=60001", "wait"), ("?wait=99999999999", "wait"),
        ],
        words="pause orders.a",
        refused=[
            ("pause 'a b'", "MATCH: must be 1 to 255"), ("pause a --until soon", "--until: "),
            ("pause a --until 2999-01-01T00:00:00Z", "--until: is too far in the future"),
            ("pause a --until 2020-01-01T00:00:00Z", "--until: has passed"),
            ("pause a --wait 61s", "--wait: must be ms from 0 to 60000"),
            ("pause a --wait=-1", "--wait: use a duration"), ("pause a --wait soon", "--wait: use a duration"),
        ],
    ),
    Operation(
        "POST /v1/topics:resume", "", {"match": "orders.a"}, answer={"changed": False}, right="admin",
        invalid=[({"match": "a" * 256}, "match"), *((f'{{"match":"a","rate":{rate}}}'.encode(), "rate") for rate in _RATES)],
        words="resume mail", refused=[("resume a --rate 0.5", "--rate: must be between")],
    ),
    Operation(
        "POST /v1/topics/{topic}:receive", "/v1/topics/orders.a:receive", {"group": "g"}, answer={"messages": []},
        right="receive",
        invalid=[
            ({"group": "two words"}, "group"), ({"group": "g", "max": 0}, "max"), ({"group": "g", "wait": "31s"}, "wait"),
            ({"group": "g", "lease": 1}, "lease"), ({"group": "g", "start": "soon"}, "start"),
            ({"group": "g", "tags": [""]}, "tags"), ({"group": "g", "call": "a b"}, "call"),
        ],
        words="receive orders.a --group g",
        refused=[
            ("receive orders.a", "missing option '--group'"), ("receive orders.a --group 'a b'", "--group: has 1 to 64"),
            ("receive 'a topic' --group g", "TOPIC: must be 1 to 255"), ("receive t --group g --wait soon", "--wait: use"),
            ("receive t --group g --lease 1ms", "--lease: is from 1 s"),
            ("receive t --group g --max 0", "invalid value for '--max'"),
        ],
    ),
    *(
        Operation(
            f"POST /v1/topics/{{topic}}:{verb}", f"/v1/topics/orders.a:{verb}", {"group": "g", "messages": []},
            answer={"results": []}, right="receive",
            invalid=[
                ({"group": "", "messages": []}, "group"), ({"group": "g", "messages": [{"id": "a", "lease": "x"}]}, "lease"),
                ({"group": "g"}, "messages"), ({"group": "g", "messages": [{"id": "a"}]}, "messages[0].lease"),
            ],
        )
        for verb in ("ack", "extend", "handBack")
    ),
    Operation(
        "GET /v1/consumers", answer={"total": 1},
        invalid=[("?match=%5B", "match"), ("?limit=0", "limit"), ("?pageToken=x", "pageToken")],
        without=(200, 200), words="consumers", same=True, refused=[("consumers 'a b*'", "MATCH: must be 1 to 255")],
    ),
    Operation(
        "DELETE /v1/topics/{topic}/groups/{group}", "/v1/topics/orders.a/groups/mail", answer={"changed": True}, right="admin",
        invalid=[("/v1/topics/a%20b/groups/mail", "topic"), ("/v1/topics/orders.a/groups/a%20b", "group")],
        words="delete-group orders.a mail",
        refused=[("delete-group orders.a 'a b'", "GROUP: has 1 to 64"), ("delete-group 'a b' g", "TOPIC: must be 1 to 255")],
    ),
    Operation(
        "POST /v1/messages:handBack", "", {"messages": [{"id": "x", "topic": "orders.a", "handBacks": 0}]},
        right="schedule", without=([403], [403]),
        invalid=[({}, "messages"), ({"messages": {}}, "messages"), ({"messages": [], "x": 1}, "x")],
    ),
    Operation(
        "GET /v1/topics", invalid=[("?match=%5B", "match"), ("?paused=maybe", "paused")], without=(200, 200),
        words="topics", same=True,
        refused=[
            ("topics 'a b*'", "MATCH: must be 1 to 255"), ("topics --paused maybe", "--paused: use yes or no"),
            ("topics a --paused yes", "--paused and --page-token"), ("topics --page-token a/b", "--page-token: "),
        ],
    ),
    Operation(
        "GET /v1/topics/{topic}", "/v1/topics/orders.a", answer={"topic": "orders.a", "held": 0},
        invalid=[("/v1/topics/a%20b", "topic")], words="topics orders.a", same=True,
    ),
    Operation(
        "GET /v1/policies", answer={"version": 1}, invalid=[("?x=1", "x")], without=(200, 200),
        words="policies list", same=True,
    ),
    Operation(
        "GET /v1/policies/{name}", "/v1/policies/p", answer={"match": "orders.*", "window": 1_000}, without=(404, 404),
        invalid=[("/v1/policies/a%20b", "name")], words="policies show p", same=True,
        refused=[("policies show a/b", "NAME: must be 1 to 64")],
    ),
    Operation(
        "PUT /v1/policies/{name}", "/v1/policies/new", {"match": "orders.*", "rate": 3}, answer={"version": 2},
        right="admin",
        invalid=[
            ({"match": "a" * 256, "rate": 1}, "match"), ({"match": "a", "rate": 1, "burst": 0}, "burst"),
            ({"match": "a", "rate": 1, "burst": 1.5}, "burst"), ({"match": "a", "burst": 5}, "burst"),
            ({"match": "a", "window": "2d"}, "window"), ({"match": "a", "backoff": ["soon"]}, "backoff"),
            ({"match": "a", "index": ["body"]}, "index[0]"), ({"match": "a", "maxInFlight": 3}, "maxInFlight"),
            ({"match": "a", "limit": 3}, "limit"), ({"match": "a", "maxHandBacks": -1}, "maxHandBacks"),
            ({"match": "a", "maxDeliveries": 0}, "maxDeliveries"), ({"match": "a", "retentionAge": "0s"}, "retentionAge"),
            ({"match": "a", "retentionForce": True}, "retentionForce"),
            *((f'{{"match":"a","rate":{rate}}}'.encode(), "rate") for rate in _RATES),
        ],
        words="policies put new --match orders.* --rate 3",
        refused=[
            ("policies put p --match a --rate 1 --burst 0", "--burst: must be between"),
            ("policies put p --match a --rate nan", "--rate: must be between"),
            ("policies put p --match a --rate 0", "--rate: must be above 0"), ("policies put p --match a --per node", "--per: "),
            ("policies put p --match a --max-in-flight 3", "--max-in-flight: route streams"),
            ("policies put p --match a --max-hand-backs 1001", "--max-hand-backs: must be between 0 and 1000"),
            ("policies put p --match a --max-deliveries 0", "--max-deliveries: must be between 1 and 1000"),
            ("policies put p --match a --retention-age soon", "--retention-age: "),
            ("policies put p --match a --retention-force", "--retention-force: needs a"),
        ],
    ),
    Operation(
        "DELETE /v1/policies/{name}", "/v1/policies/p", answer={"changed": True}, right="admin",
        invalid=[("/v1/policies/a%20b", "name")],
        words="policies delete p", refused=[("policies delete a/b", "NAME: must be 1 to 64")],
    ),
    Operation(
        "GET /v1/audit", "/v1/audit?topic=orders.a",
        invalid=[
            ("?topic=", "topic"), ("?topic=orders.[xy]", "topic"), ("?id=a/b", "id"), ("?id=", "id"), ("?key=", "key"),
            ("?key=a%20b", "key"), ("?actor=", "actor"), ("?action=", "action"), ("?action=foo", "action"),
            ("?from=2000&to=1000", "to"), ("?from=soon", "from"), ("?pageToken=", "pageToken"),
            ("?pageToken=MSAyIDM", "pageToken"),
        ],
        words="audit",
        refused=[
            ("audit --action foo", "--action: 'foo' is not one of cancel, "), ("audit --action=", "--action: '' is not one of"),
            ("audit --actor=", "--actor: is empty"), ("audit --id a/b", "--id: must be 1 to 128 characters"),
            ("audit --key=", "--key: a key must not be empty"), ("audit --topic o[rd]", "--topic: must be 1 to 255 characters"),
            ("audit --from 1h --to 2h", "--to: must be later than from"),
            ("audit --page-token x", "--page-token: is not a token"),
        ],
    ),
    Operation("GET /v1/queues", invalid=[("?x=1", "x")], right="read on *", words="queues", same=True),
    Operation("GET /v1/stats", invalid=[("?x=1", "x")], right="read on *"),
    Operation("GET /v1/nodes", invalid=[("?node=a", "node")], right="read on *", words="nodes", same=True),
    Operation("GET /v1/routes", invalid=[("?x=", "x")], right="read on *", words="routes", same=True),
    Operation("GET /v1/status", invalid=[("?x=", "x")], right="read on *", redis=False, words="status", same=True),
    Operation("GET /v1/overview", invalid=[("?x=", "x")], right="read on *", words="overview"),
    Operation(
        "POST /v1/dev:advance", "", {"time": "30m"}, status=409, right="admin on *",
        invalid=[
            ({"time": "soon"}, "time"), ({"time": -1}, "time"), ({}, "time"), ({"time": LONG}, "time"),
            ({"time": "1m", "x": 1}, "x"), ({"time": 1.5}, "time"),
        ],
    ),
    Operation("GET /v1/me", answer={"name": "boss"}, right="any", redis=False, words="me"),
    Operation("GET /livez", answer={"status": "alive"}, right="none", redis=False),
    Operation("GET /readyz", right="none"),
    Operation("GET /metrics", right="read on *", redis=False),
)  # fmt: skip

#: What only the command line has.
COMMANDS_ONLY: Final[Sequence[Operation]] = (
    Operation(
        path="/v1/messages?key=k", words="find k", same=True, refused=[
            ("find", "missing argument 'KEY'"), ("find 'a b'", "KEY: a key must not be empty, or contain white space"),
        ],
    ),
    Operation(path="/v1/messages/m?explain=true", words="explain m", same=True),
    Operation(
        words="tail orders.a --from-start --count 1",
        refused=[
            ("tail 'a topic'", "TOPIC: must be 1 to 255 characters"), ("tail t --count 0", "invalid value for '--count'"),
            ("tail t --redis-url redis://h?a=b", "the Redis URL is wrong"),
        ],
    ),
    Operation(words="doctor", refused=[("doctor --redis-url redis://..", "the Redis URL is wrong")]),
    Operation(words="doctor --repair"),
    Operation(words="era show", refused=[("era", "no command given")]),
    Operation(words="era bump --yes", refused=[("era bump", "a new era may move queues to other nodes; confirm with --yes")]),
    Operation(
        words="reshard --queues 4 --dry-run",
        refused=[
            ("reshard --queues 16", "this Redis has 16 queues already"), ("reshard --queues 0", "invalid value for '--queues'"),
            ("reshard --queues 16385", "invalid value for '--queues'"), ("reshard --queues x", "invalid value for '--queues'"),
        ],
    ),
    Operation(words="backfill undo r", refused=[("backfill undo", "missing argument 'RUN'")]),
)  # fmt: skip
