"""What comes in over HTTP: any bytes in a body, nothing strange in an id, nothing too large, no due that is none."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from delayq.embedded.processes import LOCALHOST
from tests.faults.flow import GENERAL, LOCAL, batch, drained, entries, ids_of, now
from tests.support.servers import ServerUnderTest
from tests.support.service import Service

pytestmark = pytest.mark.long

BODIES = [
    b"", b"\0", b"a\0b", b"~", b"a~b~~", b"\r\n", b"a\r\nb\n", b"\xff", b"\xff\xfe\0\x80", bytes(range(256)),
    "äß€😀\u2028".encode(), b"*3\r\n$3\r\nDEL\r\n", b"x" * 100_000,
]  # fmt: skip
BAD_IDS = ["", " ", "a b", "a\0b", "a\r\nb", "ü", "~", "a/b", "a{1}b", "\ud7ff", "x" * 129, 5, True, [], {}]
LIMIT = 1024 * 1024
HUGE = 512 * 1024 * 1024


@pytest.mark.parametrize("path", [GENERAL, LOCAL])
def test_f11_bodies_arrive_byte_for_byte_and_strange_ids_are_refused(
    plain: Service, plain_server: ServerUnderTest, path: str
) -> None:
    topic = f"{path}.f11"
    messages: list[dict[str, Any]] = [
        {"topic": topic, "id": f"{topic}-b{number}", "bodyBase64": base64.b64encode(body).decode(), "delayTime": 50}
        for number, body in enumerate(BODIES)
    ]
    texts = {f"{topic}-t{number}": body.decode() for number, body in enumerate(BODIES) if b"\xff" not in body}
    messages += [{"topic": topic, "id": id, "body": text, "delayTime": 50} for id, text in texts.items()]
    ids_of(batch(plain, messages))
    drained(plain)
    found = {entry["id"].decode(): entry["body"] for entry in entries(plain_server.admin, topic)}
    assert found == {f"{topic}-b{number}": body for number, body in enumerate(BODIES)} | {
        id: text.encode() for id, text in texts.items()
    }
    for id in BAD_IDS:
        refused = plain.schedule(topic, id=id, delayTime=50)
        assert (refused.status_code, refused.json()["field"]) == (400, "id"), id
    for field, values in (("topic", ["", "a b", "a\nb", "delayq:x"]), ("keys", [["a b"], ["a\0b"], ["a\nb"], [""]])):
        for value in values:
            refused = plain.http.post("/v1/messages", json={"topic": topic, "delayTime": 50, field: value})
            assert refused.status_code == 400, (field, value)
    drained(plain)
    assert plain_server.admin.xlen(topic) == len(messages)


def resident(pid: int) -> int:
    """The bytes that a process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def told_before_the_body(port: int, head: str) -> tuple[int, str]:
    """Send the head of a request and nothing of its body; the status, and the rest of the answer."""
    with socket.create_connection((LOCALHOST, port), timeout=10) as connection:
        connection.sendall(
            f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{head}\r\n\r\n".encode()
        )
        answer = b""
        while b"too-large" not in answer and (data := connection.recv(65_536)):
            answer += data
    return int(answer.split(b" ", 2)[1]), answer.decode()


def test_f12_what_is_too_large_is_refused_before_it_is_read(plain: Service, plain_server: ServerUnderTest) -> None:
    topic = f"{LOCAL}.f12"
    assert plain.schedule(topic, id="f12-at", body="x" * LIMIT, delayTime=10).status_code == 201
    over = plain.schedule(topic, id="f12-over", body="x" * (LIMIT + 1), delayTime=10)
    assert (over.status_code, over.json()["field"]) == (413, "body")
    two = batch(plain, [{"topic": topic, "id": f"f12-{n}", "body": "x" * (LIMIT + n), "delayTime": 10} for n in (0, 1)])
    assert [one["status"] for one in two] == [201, 413]
    before = resident(plain.api.pid)
    assert told_before_the_body(plain.port, f"Content-Length: {HUGE}")[0] == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(HUGE // 4 // 65_536):
            yield b" " * 65_536

    try:  # it answers while the rest is still on its way, which not every client looks at
        chunked = httpx2.post(
            f"{plain.url}/v1/messages", content=chunks(), headers={"content-type": "application/json"}
        )
        assert chunked.status_code == 413
    except (httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError):
        pass
    assert resident(plain.api.pid) - before < 64 * 1024 * 1024
    drained(plain)
    found = sorted((entry["id"], len(entry["body"])) for entry in entries(plain_server.admin, topic))
    assert found == [(b"f12-0", LIMIT), (b"f12-at", LIMIT)]


BAD = ["-1", "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1.5", "true", "null", "[]", "{}", '""', '"soon"',
       '"NaN"', '"-5s"', str(2**53), str(2**53 + 1), str(2**64), str(10**30), '"9999999d"']  # fmt: skip
BAD_DELAYS = [*BAD, str(11 * 365 * 86_400_000)]
BAD_DATES = [
    *BAD,
    '"9999-12-31T23:59:59Z"',
    '"2027-13-01T00:00:00Z"',
    '"2027-01-01"',
    '"2027-01-01T00:00:00"',
    "253402300799000",
]
BAD_LEVELS = ["-1", "0", "1.5", "true", '"3"', "NaN", "1e400", str(2**64)]
GOOD = [("delayTime", "0"), ("delayTime", '"0s"'), ("expectDate", "0"), ("expectDate", "1"), ("delayLevel", "1"),
        ("expectDate", '"1970-01-01T00:00:00Z"'), ("expectDate", '"2001-02-03T04:05:06.789+07:00"')]  # fmt: skip


def test_f13_a_due_that_is_none_is_refused_and_the_past_means_now(
    plain: Service, plain_server: ServerUnderTest
) -> None:
    topic, kind = f"{LOCAL}.f13", {"content-type": "application/json"}

    def post(id: str, field: str, value: str) -> httpx2.Response:
        text = f'{{"topic": "{topic}", "id": "{id}", "{field}": {value}}}'
        return plain.http.post("/v1/messages", content=text.encode(), headers=kind)

    wrong = {"delayTime": BAD_DELAYS, "expectDate": BAD_DATES, "delayLevel": BAD_LEVELS}
    for field, values in wrong.items():
        for value in values:
            refused = post("f13-bad", field, value)
            assert refused.status_code == 400, (field, value, refused.text)
            item = f'{{"messages": [{{"topic": "{topic}", "id": "f13-bad", "{field}": {value}}}]}}'
            several = plain.http.post("/v1/messages:batch", content=item.encode(), headers=kind)
            assert several.status_code == 400 or several.json()["results"][0]["status"] == 400, (field, value)
    for number, (field, value) in enumerate(GOOD):
        before = now()
        answer = post(f"f13-{number}", field, value)
        assert answer.status_code == 201, (field, value, answer.text)
        late = 1_000 if field == "delayLevel" else 0
        assert before + late <= answer.json()["dueMs"] <= now() + late
    assert plain.http.get("/v1/messages/f13-bad").status_code == 404
    drained(plain)
    arrived = {json.loads(f'"{entry["id"].decode()}"') for entry in entries(plain_server.admin, topic)}
    assert arrived == {f"f13-{number}" for number in range(len(GOOD))}
