"""A TCP proxy in front of a Redis, which makes the faults that a test requests.

It reads the frames of the Redis protocol, so that it can drop the reply of one command after the server ran it.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Self

from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import scripts

MOST_LINKS = 64
CHUNK = 65_536
PIECE = 512  # of a line that is slow

Words = Sequence[bytes]


@cache
def _scripts() -> dict[bytes, str]:
    loaded = [(name, scripts.load(name)) for name in scripts.NAMES]
    return {text.encode(): name for name, script in loaded for text in (script.sha, script.text)}


def script_of(words: Words) -> str:
    """The name of the script that a command runs, or the plain command's name in lower case."""
    name = words[0].lower()
    if name in (b"evalsha", b"eval"):
        return _scripts().get(words[1], name.decode())
    return name.decode()


class Proxy:
    """Passes every connection on. Use it as a context manager, so that no thread stays behind."""

    def __init__(self, server: tuple[str, int], listen: str = LOCALHOST, at: int = 0) -> None:
        """In front of `server`; it listens on the address `listen`, at the port `at` (0: a free one)."""
        self.port = at or free_port()
        self._host = listen
        self._server = server
        self._lock = threading.RLock()  # a fault may begin another one
        self._links: set[Link] = set()
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self._passing = threading.Event()  # nothing is held
        self._passing.set()

    def link(self, client: socket.socket) -> Link:
        """What passes a connection on."""
        raise NotImplementedError

    @property
    def connections(self) -> int:
        """How many there are now."""
        with self._lock:
            return len(self._links)

    def lead_to(self, port: int) -> None:
        """Be a name that has moved: new connections go to another server, those that are there stay where they are."""
        self._server = (self._server[0], port)

    # -- faults --------------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Keep what links are to hold, as a line does that is cut for a while, until it is released."""
        self._passing.clear()

    def release(self) -> None:
        """Let what was held arrive, though its sender may have given up."""
        self._passing.set()

    def wait_while_held(self) -> None:
        """Return once what was held may pass."""
        self._passing.wait()

    def refuse(self) -> None:
        """Reset what there is and accept nothing."""
        self._stop_listening()
        self.reset()

    def reset(self) -> None:
        """Reset every connection there is; new ones are welcome."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.reset()

    def heal(self) -> None:
        """Pass everything on again."""
        self._listen()

    # -- life ----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop_listening()
        self.release()
        self.reset()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.join()

    def _listen(self) -> None:
        if self._listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._host, self.port))
        listener.listen(MOST_LINKS)
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,), name="proxy-accept", daemon=True)
        self._accepting.start()

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        assert self._accepting is not None
        self._accepting.join(5)
        listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            link = self.link(client)
            with self._lock:
                welcome = len(self._links) < MOST_LINKS
                if welcome:
                    self._links.add(link)
            if not welcome or not link.open(self._server):
                link.reset()
                self.gone(link)

    def gone(self, link: Link) -> None:
        """A link has ended."""
        with self._lock:
            self._links.discard(link)


class Link:
    """One connection: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server: socket.socket | None = None
        self._lock = threading.Lock()
        self._ended = False
        self._threads: list[threading.Thread] = []

    def _requests(self, server: socket.socket) -> None:
        raise NotImplementedError

    def _replies(self, server: socket.socket) -> None:
        raise NotImplementedError

    def open(self, address: tuple[str, int]) -> bool:
        """Connect to the server and start; False if it is not there, or if this was reset meanwhile."""
        try:
            server = socket.create_connection(address, timeout=5)
        except OSError:
            return False
        server.settimeout(None)
        with self._lock:
            if self._ended:
                server.close()
                return False
            self._server = server
            for end in (self._client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, pump in (("requests", self._requests), ("replies", self._replies)):
            thread = threading.Thread(target=self._run, args=(pump,), name=f"proxy-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return True

    def _run(self, pump: Callable[[socket.socket], None]) -> None:
        assert self._server is not None
        with suppress(OSError):
            pump(self._server)
        self.reset()

    def reset(self) -> None:
        """RST to both ends."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        for end in filter(None, (self._client, self._server)):
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)  # wakes the thread that reads; close alone would not
            except OSError:
                pass
            end.close()
        self._proxy.gone(self)

    def join(self) -> None:
        """Wait for the end of the threads."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5)


class FaultProxy(Proxy):
    """Passes everything on to a Redis until a test changes that; with `held`, bytes for the server wait."""

    def __init__(self, port: int, host: str = LOCALHOST, *, listen: str = LOCALHOST, at: int = 0) -> None:
        super().__init__((host, port), listen, at)
        self.commands: deque[str] = deque(maxlen=10_000)  # what went through, by script_of
        self.dropped: list[str] = []  # whose replies were dropped
        self._faults: list[_DropReply] = []
        self._requests_left: int | None = None  # bytes to the server until everything is cut
        self._swallow = False
        self._rate: int | None = None  # bytes a second, in each direction
        self._free_at = [0.0, 0.0]  # when each direction has passed on what it was given

    def link(self, client: socket.socket) -> Link:
        return _Link(self, client)

    @property
    def url(self) -> str:
        """The URL of the server, through here."""
        return f"redis://{self._host}:{self.port}/0"

    # -- faults --------------------------------------------------------------------------------------------------------

    def drop_reply(self, script: str, times: int = 1, *, when: Callable[[Words], bool] | None = None) -> None:
        """Let the next `times` commands of this script (or plain command) run, drop each reply, and reset."""
        with self._lock:
            self._faults.append(_DropReply(script, times, when))

    def cut_after(self, count: int) -> None:
        """Pass `count` bytes more to the server, in all, then reset every connection there is."""
        with self._lock:
            self._requests_left = count

    def throttle(self, rate: int) -> None:
        """Pass on `rate` bytes a second in each direction, over all connections together."""
        self._rate = rate

    def black_hole(self) -> None:
        """Accept, read, answer nothing, reset nothing."""
        self._swallow = True

    def heal(self) -> None:
        """Pass everything on again. What fell into the black hole is lost: its connections are reset."""
        with self._lock:
            self._faults.clear()
            self._requests_left = None
            self._rate = None
        if self._swallow:
            self._swallow = False
            self.reset()
        super().heal()

    @property
    def armed(self) -> bool:
        """Whether a fault still waits for its command."""
        with self._lock:
            return any(fault.times for fault in self._faults)

    # -- what links ask ------------------------------------------------------------------------------------------------

    @property
    def swallows(self) -> bool:
        """Whether data vanish here."""
        return self._swallow

    def to_be_dropped(self, words: Words) -> bool:
        """Whether the reply of this command is to be dropped; that counts it."""
        name = script_of(words)
        self.commands.append(name)
        with self._lock:
            for fault in self._faults:
                if fault.times and fault.script == name and (fault.when is None or fault.when(words)):
                    fault.times -= 1
                    return True
        return False

    def send(self, end: socket.socket, data: bytes, direction: int) -> None:
        """Pass data on as fast as the line is; direction 0 is to the server."""
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            rate = self._rate
            if rate is None:
                end.sendall(data[start:])
                return
            with self._lock:
                at = max(time.monotonic(), self._free_at[direction]) + len(piece) / rate
                self._free_at[direction] = at
            while self._rate == rate and (left := at - time.monotonic()) > 0:
                time.sleep(min(left, 0.05))
            end.sendall(piece)

    def may_pass(self, count: int) -> int:
        """How many of so many bytes may go on to the server."""
        with self._lock:
            if self._requests_left is None:
                return count
            passed = min(count, self._requests_left)
            self._requests_left -= passed
            return passed


class _DropReply:
    def __init__(self, script: str, times: int, when: Callable[[Words], bool] | None) -> None:
        self.script = script
        self.times = times
        self.when = when


class _Link(Link):
    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        super().__init__(proxy, client)
        self._proxy: FaultProxy = proxy
        self._drops: deque[tuple[bool, str]] = deque()  # of each command without a reply: drop it?
        self._subscribed = False

    def _requests(self, server: socket.socket) -> None:
        frames = _Frames()
        while data := self._client.recv(CHUNK):
            if self._proxy.swallows:
                continue
            self._proxy.wait_while_held()
            for frame in frames.feed(data):
                words = _words_of(frame)
                self._subscribed = self._subscribed or words[0].upper() == b"SUBSCRIBE"
                if not self._subscribed:
                    self._drops.append((self._proxy.to_be_dropped(words), script_of(words)))
            count = self._proxy.may_pass(len(data))
            self._proxy.send(server, data[:count], 0)
            if count < len(data):
                self._proxy.reset()
                return

    def _replies(self, server: socket.socket) -> None:
        frames = _Frames()
        while data := server.recv(CHUNK):
            if self._proxy.swallows:
                continue
            if self._subscribed:
                self._proxy.send(self._client, data, 1)
                continue
            for frame in frames.feed(data):
                drop, name = self._drops.popleft()
                if drop:
                    self._proxy.dropped.append(name)
                    return  # both ends are reset
                self._proxy.send(self._client, frame, 1)


class _Frames:
    """Cuts a stream of bytes into complete frames of the Redis protocol."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._rest + data
        frames, at = [], 0
        while (end := _frame_end(buffer, at)) is not None:
            frames.append(buffer[at:end])
            at = end
        self._rest = buffer[at:]
        return frames


def _frame_end(buffer: bytes, at: int) -> int | None:
    line = buffer.find(b"\r\n", at)
    if line < 0:
        return None
    kind, end = buffer[at : at + 1], line + 2
    if kind == b"$":
        size = int(buffer[at + 1 : line])
        end += size + 2 if size >= 0 else 0
        return end if end <= len(buffer) else None
    if kind == b"*":
        for _ in range(max(0, int(buffer[at + 1 : line]))):
            inner = _frame_end(buffer, end)
            if inner is None:
                return None
            end = inner
    return end


def _words_of(frame: bytes) -> list[bytes]:
    words, at = [], frame.index(b"\r\n") + 2
    while at < len(frame):
        line = frame.index(b"\r\n", at)
        size = int(frame[at + 1 : line])
        words.append(frame[line + 2 : line + 2 + size])
        at = line + 2 + size + 2
    return words
