# Made from async_api.py by ./dev check --fix; change that one.
"""Sends requests to the API over connections that are kept, and repeats those whose answer was lost (decision 59)."""

from __future__ import annotations

import ssl
from collections import deque
from typing import Final

from delayq.base.errors import ConfigError, StoreUnavailable
from delayq.http.calls import REPEATED, Answer, Attempts, Base, Call
from delayq.http.threads import CLOCK, Stream, pause

#: Idle connections that are kept.
MOST_IDLE: Final = 16
#: The most bytes of an answer.
MOST_ANSWER: Final = 512 * 1024 * 1024
#: The most bytes of one line of its head.
MOST_LINE: Final = 64 * 1024


class Api:
    """The API at one address. `timeout` bounds an attempt, `give_up_after` a call with all its attempts; both are ms."""

    def __init__(self, base: Base, context: ssl.SSLContext | None, timeout: int, give_up_after: int) -> None:
        self.base = base
        self._context = (context or ssl.create_default_context()) if base.is_tls else None
        self._timeout = timeout
        self._give_up_after = give_up_after
        self._idle: deque[Stream] = deque()
        self._is_closed = False

    def attempts(self, longest: int | None = None) -> Attempts:
        """The attempts of a call that begins now, for at most so many ms."""
        most = self._give_up_after
        return Attempts(CLOCK.precise(), most if longest is None else min(longest, most))

    def wait(self, attempts: Attempts, retry_after: int = 0) -> bool:
        """Wait before the next attempt; False if the time of the call is over before it."""
        seconds = attempts.pause(CLOCK.precise(), retry_after)
        if seconds is not None:
            pause(seconds)
        return seconds is not None

    def send(self, call: Call, attempts: Attempts | None = None) -> Answer:
        """Send a request, again after a lost answer, 429 and 503. Raises StoreUnavailable if no answer arrives in time."""
        attempts = attempts or self.attempts()
        request = self.base.request(call)
        while True:
            try:
                answer = self._attempt(request, CLOCK.precise() + self._timeout + call.extra)
            except ssl.SSLCertVerificationError as error:
                raise ConfigError(f"the certificate of {self.base.url} is not valid: {error.verify_message}") from None
            except OSError as error:
                if not call.may_repeat or not self.wait(attempts):
                    reason = str(error) or "it took too long"
                    then = "repeating the call is safe" if call.may_repeat else "a repeated call would be done again"
                    lost = StoreUnavailable(
                        f"no answer from {self.base.url} ({reason}): the outcome is unknown, and {then}"
                    )
                    raise (lost if call.id is None else lost.about(call.id)) from None
                continue
            if answer.status not in REPEATED or not self.wait(attempts, answer.retry_after):
                return answer

    def _attempt(self, request: bytes, until: float) -> Answer:
        stream = self._take() or Stream.open(self.base.host, self.base.port, self._context, until)
        is_kept = False
        try:
            stream.until = until
            stream.send(request)
            answer, is_kept = _receive(_Reader(stream))
            return answer
        finally:  # a call that was cancelled in the middle leaves no half answer
            if is_kept and not self._is_closed and len(self._idle) < MOST_IDLE:
                self._idle.append(stream)
            else:
                stream.close()

    def _take(self) -> Stream | None:
        """Take an idle connection, if one is still usable."""
        while True:
            try:
                stream = self._idle.pop()
            except IndexError:  # another thread may have taken the last one
                return None
            if not stream.is_stale:
                return stream
            stream.close()

    def close(self) -> None:
        """Close the connections. A call under way closes its own when it ends."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()


class _Reader:
    """Reads one answer from a connection. A connection with more bytes than the answer is closed."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    def read_line(self) -> bytes:
        """Read a line with its end; without an end, the connection was closed. Raises OSError."""
        while (end := self._buffer.find(b"\n")) < 0 and self._fill():
            if len(self._buffer) > MOST_LINE:
                raise OSError("the head of the answer is too large")
        return self._take(end + 1 if end >= 0 else len(self._buffer))

    def read(self, size: int) -> bytes:
        """Read so many bytes; fewer if the connection is closed. -1 reads until it is closed."""
        while (size < 0 or len(self._buffer) < size) and self._fill():
            pass
        return self._take(len(self._buffer) if size < 0 else size)

    @property
    def is_empty(self) -> bool:
        """Whether the server has sent nothing more."""
        return not self._buffer

    def _fill(self) -> bool:
        received = self._stream.receive()
        self._buffer += received
        return bool(received)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def _receive(reader: _Reader) -> tuple[Answer, bool]:
    """Read an answer, and whether the connection may be used again. Raises OSError."""
    status = 100
    headers: dict[bytes, bytes] = {}
    version = b""
    while 100 <= status < 200:  # an interim answer, such as 100 Continue
        line = reader.read_line()
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise OSError("the connection was closed" if not line else "the answer is no HTTP/1.1")
        status = int(rest[:3])
        headers = {}
        while (line := reader.read_line()) not in (b"\r\n", b"\n"):
            name, colon, value = line.partition(b":")
            if not colon or not line.endswith(b"\n") or len(headers) > 1_000:
                raise OSError("the head of the answer is cut off or malformed")
            headers[name.strip().lower()] = value.strip()
    is_kept = version != b"HTTP/1.0" and b"close" not in headers.get(b"connection", b"").lower()
    if status in (204, 304):
        body = b""
    elif b"chunked" in headers.get(b"transfer-encoding", b"").lower():
        body = _receive_chunks(reader)
    elif (length := headers.get(b"content-length")) is not None:
        if not length.isdigit() or int(length) > MOST_ANSWER:
            raise OSError("the answer has no valid length")
        body = reader.read(int(length))
        if len(body) < int(length):
            raise OSError("the answer is cut off")
    else:
        body, is_kept = reader.read(-1), False
    after = headers.get(b"retry-after", b"")
    wait = int(after) * 1000 if after.isdigit() and len(after) < 6 else 0
    kind, location = (headers.get(name, b"").decode(errors="replace") for name in (b"content-type", b"location"))
    return Answer(status, body, wait, kind, location), is_kept and reader.is_empty


def _receive_chunks(reader: _Reader) -> bytes:
    body = bytearray()
    while True:
        line = reader.read_line()
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise OSError("the answer is cut off") from None
        if size < 0 or len(body) + size > MOST_ANSWER:
            raise OSError("the answer has no valid length")
        chunk = reader.read(size)
        if len(chunk) < size:
            raise OSError("the answer is cut off")
        body += chunk
        if size == 0:
            break
        reader.read_line()
    while (line := reader.read_line()) not in (b"\r\n", b"\n"):  # trailers
        if not line:
            raise OSError("the answer is cut off")
    return bytes(body)
