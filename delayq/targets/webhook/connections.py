"""HTTP/1.1 connections to addresses that were checked, kept and used again. Every wait ends at a deadline.

HTTP/1.1 has no numbers that pair answers with requests, only their order. So a connection is kept only while the endpoint
has sent nothing beyond the expected answer, neither in the parser's buffer nor in the socket's.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Final

from delayq.base.clock import Clock
from delayq.base.errors import MissingExtra
from delayq.base.socket_writes import write_until
from delayq.targets.webhook.egress import Endpoint, ResolvedAddress

try:
    import httpcore2
except ModuleNotFoundError:
    raise MissingExtra("a webhook (an http or https target)", "webhook") from None

#: The errors of an open connection.
FAILURES: Final = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)
#: ms that an unused connection is kept: less than servers keep theirs, so that few are closed as they are used again.
IDLE: Final = 4_000
MOST_IDLE: Final = 64
#: Answers with these statuses have no body, whatever their headers announce.
BODILESS: Final = frozenset({204, 304})

#: A further answer and its status, unless that is of an interim answer or has not arrived.
_ANSWER = re.compile(rb"\s*(?:HTTP/\d\.\d ([2-5]\d\d)|H(?:T(?:T(?:P(?:/.*)?)?)?)?$)", re.DOTALL)


class Wire(httpcore2.NetworkStream):
    """A connected socket. However slowly bytes come or go, nothing waits beyond `deadline` (monotonic ms)."""

    def __init__(self, sock: socket.socket, clock: Clock, deadline: int) -> None:
        self.deadline = deadline
        self._sock = sock
        self._clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes; none at the end."""
        left = self.deadline - self._clock.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("time-out")
        self._sock.settimeout(left / 1000)
        try:
            return self._sock.recv(max_bytes)
        except TimeoutError:
            raise httpcore2.ReadTimeout("time-out") from None
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """All of the bytes."""
        try:
            write_until(self._sock, buffer, self._clock, self.deadline)
        except TimeoutError:
            raise httpcore2.WriteTimeout("time-out") from None
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from None

    def close(self) -> None:
        """Release the socket."""
        self._sock.close()

    def acknowledge(self) -> None:
        """Acknowledge at once what was read: an endpoint's system may hold more back until then (Nagle's algorithm)."""
        if hasattr(socket, "TCP_QUICKACK"):  # on Linux
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def is_quiet(self) -> bool:
        """Whether the connection is open and nothing has arrived. Otherwise close it: a byte that arrived is lost.

        It reads instead of polling: by TLS the socket's bytes may be a session ticket, and an answer may lie in OpenSSL.
        """
        self._sock.setblocking(False)
        try:
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        return False


class Connection:
    """A connection to one address."""

    def __init__(self, address: ResolvedAddress, wire: Wire, origin: httpcore2.Origin) -> None:
        self.address = address
        self.wire = wire
        self.http = httpcore2.HTTP11Connection(origin, wire)
        self.idle_since = 0  # monotonic ms
        self.is_kept = False  # whether it has had an earlier request

    @property
    def surplus(self) -> bytes:
        """The bytes behind the end of the answer that have been read."""
        if not self.http.is_idle():
            return b""
        data, _ = self.http._h11_state.trailing_data  # there is no public way
        return bytes(data)

    def second_status(self) -> int | None:
        """The status of a second answer behind the first one, 0 if it is not known yet; None if there is none.

        On a kept connection the second one may belong to the request, and the first one to the request before.
        """
        second = _ANSWER.match(self.surplus) if self.is_kept else None
        return int(second[1] or 0) if second else None


def _announces_a_body(response: httpcore2.Response) -> bool:
    """Whether an answer that has no body by its status has one by its headers: it may still arrive."""
    headers = {name.lower(): value for name, value in response.headers}
    announced = headers.get(b"content-length", b"0").strip(b"0") != b"" or b"transfer-encoding" in headers
    return response.status in BODILESS and announced


class Connections:
    """The connections to one endpoint; safe for threads."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self.origin = httpcore2.Origin(endpoint.scheme.encode(), endpoint.host.encode(), endpoint.port)
        self._endpoint = endpoint
        self._tls = tls
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._failed: frozenset[ResolvedAddress] = frozenset()  # since they last answered
        self._closed = False

    def take(self, addresses: Sequence[ResolvedAddress], deadline: int, connect_timeout: int) -> Connection:
        """A connection to one of these addresses, kept or new; raises OSError.

        A new one may take `connect_timeout` ms for each address, until `deadline` (monotonic ms). An address that failed is
        tried last until it answers again. Otherwise it would use up the time and the attempts of the others.
        """
        kept = self._kept(addresses)
        if kept is not None:
            kept.wire.deadline = deadline
            return kept
        error = OSError("there is no address")
        self._failed &= frozenset(addresses)
        for address in sorted(addresses, key=self._failed.__contains__):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError("no connection in time")
            try:
                sock = self._connect(address, min(left, connect_timeout) / 1000)
            except OSError as failed:
                error = failed
                self._failed |= {address}
                continue
            return Connection(address, Wire(sock, self._clock, deadline), self.origin)
        raise error

    def _kept(self, addresses: Sequence[ResolvedAddress]) -> Connection | None:
        now = self._clock.monotonic()
        found = None
        with self._lock:
            kept, self._idle = self._idle, []
            for one in reversed(kept):  # the one used last
                if one.address not in addresses or now - one.idle_since >= IDLE or not one.wire.is_quiet():
                    one.http.close()
                elif found is None:
                    found = one
                else:
                    self._idle.insert(0, one)
        return found

    def _connect(self, address: ResolvedAddress, timeout: float) -> socket.socket:
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            sock.connect(address.sockaddr)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The certificate has to be that of the host, whatever its address.
            return self._tls.wrap_socket(sock, server_hostname=self._endpoint.host) if self._tls else sock
        except BaseException:
            sock.close()
            raise

    def give_back(self, connection: Connection, response: httpcore2.Response | None) -> None:
        """Keep the connection if it can be used again: its last answer is read, and nothing follows it."""
        self._failed = self._failed - {connection.address} if response else self._failed | {connection.address}
        clean = connection.http.is_idle() and not connection.surplus
        if clean:
            connection.wire.acknowledge()
        with self._lock:
            if (
                clean
                and response
                and not _announces_a_body(response)
                and not self._closed
                and len(self._idle) < MOST_IDLE
            ):
                connection.is_kept, connection.idle_since = True, self._clock.monotonic()
                self._idle.append(connection)
                return
        connection.http.close()

    def close(self) -> None:
        """Close the kept connections. A connection that is given back later is closed, too."""
        with self._lock:
            kept, self._idle, self._closed = self._idle, [], True
        for one in kept:
            one.http.close()
