"""The little of RocketMQ's remoting protocol that an administrator needs: one request, one answer, over TCP."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from delayq.embedded.processes import LOCALHOST
from testbed.errors import ServerError

_SECONDS: Final = 10.0
_JSON: Final = 0
_SUCCESS: Final = 0


class Answer(NamedTuple):
    """The reply of a server: `code` 0 is success, `remark` explains any other code."""

    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


def ask(
    port: int, code: int, fields: Mapping[str, object] | None = None, *, body: bytes = b"", seconds: float = _SECONDS
) -> bytes:
    """Send a request of this code; the body of its answer. Raises OSError, or ServerError with the server's words."""
    with socket.create_connection((LOCALHOST, port), timeout=seconds) as connection:
        answer = exchange(connection, code, fields or {}, body)
    if answer.code != _SUCCESS:
        raise ServerError(f"request {code}: {answer.remark or answer.code}")
    return answer.body


def exchange(connection: socket.socket, code: int, fields: Mapping[str, object], body: bytes = b"") -> Answer:
    """Send a request of this code, and have its answer. Raises OSError.

    A request is its length, the length of its head (whose first byte is its encoding), the head and a body.
    """
    head: dict[str, Any] = {
        "code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 0, "serializeTypeCurrentRPC": "JSON",
        "extFields": {name: str(value) for name, value in fields.items()},
    }  # fmt: skip
    text = json.dumps(head).encode()
    connection.sendall(struct.pack(">ii", 4 + len(text) + len(body), _JSON << 24 | len(text)) + text + body)
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    answer = _exactly(connection, length)
    (size,) = struct.unpack_from(">i", answer)
    size &= 0xFFFFFF
    said = json.loads(answer[4 : 4 + size])
    return Answer(said["code"], said.get("remark") or "", said.get("extFields") or {}, answer[4 + size :])


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the server closed the connection")
        data += more
    return bytes(data)
