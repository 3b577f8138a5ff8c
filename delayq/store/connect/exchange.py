"""The common part of both stores: the bytes of commands, the errors, and the commands on their way."""

from __future__ import annotations

import re
import ssl
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, Final, TypeVar

import msgspec
import redis

from delayq.base.errors import DelayqError, NotDone, StoreError, StoreFull, StoreRefused, StoreUnavailable, WrongRedis
from delayq.base.interrupts import raise_if_interrupt
from delayq.store import scripts
from delayq.store.commands import Command, plain
from delayq.store.connect.server_state import SLOW, ServerState, WrongKind, WrongServer, late_by, packed
from delayq.store.rights import lacking_of

T = TypeVar("T")

#: Commands sent ahead of their replies: enough to keep the server busy, few enough for the socket buffers.
AHEAD: Final = 32
AHEAD_BYTES: Final = 1024 * 1024
#: Small commands are sent together in packets of about this many bytes.
PACKET: Final = 16 * 1024
PASSING = ("BUSY", "LOADING", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
#: As a code, or where a script quotes it. Redis 7 gives no code if a script reaches a command that is not allowed.
_REFUSED: Final = re.compile(
    r"(?:^|: -?|-)(?:NOAUTH|WRONGPASS|NOPERM|DENIED)\b|^(?:ERR )?(?:ACL failure in script|The user executing the script can't )"
)
#: The refusal of a script by Redis 7.0, which does not name the missing right.
_NAMELESS: Final = re.compile(r"^(?:ERR )?The user executing the script can't ")
PASSING_ERRORS = (redis.exceptions.ReadOnlyError, redis.exceptions.TryAgainError, redis.exceptions.ClusterDownError)


def translate(error: Exception) -> StoreError:
    text = reason_of(error)
    if isinstance(error, StoreError):
        return error
    if isinstance(error, WrongKind):
        return WrongRedis(text)
    if late_by(error) is not None:
        return NotDone("Redis refused the call, because it came too late")
    if isinstance(error, redis.exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return StoreFull(f"Redis has reached its maxmemory ({text})")
    if is_refusal(error):
        return StoreRefused(f"Redis refused the credentials or the command: {text}")
    if (untrusted := _untrusted(error)) is not None:
        return StoreUnavailable(
            f"the certificate of Redis is not trusted: {untrusted.verify_message}; "
            "name the trusted authority with ?ssl_ca_certs=… in DELAYQ_REDIS_URL"
        )
    if isinstance(error, (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError, TimeoutError)):
        return StoreUnavailable(f"Redis is unreachable, or its reply was lost: {text}")
    if isinstance(error, PASSING_ERRORS) or text.startswith(PASSING):
        return NotDone(f"Redis refuses commands now: {text}")
    return StoreError(text)


def is_refusal(error: Exception) -> bool:
    """Return whether Redis refused the user, the password, or a command that the user may not run. The command did not
    run.

    A script that writes checks all its commands first (see `scripts`), so a refused one has changed nothing.
    """
    known = (
        redis.exceptions.AuthenticationError,
        redis.exceptions.AuthorizationError,
        redis.exceptions.NoPermissionError,
    )
    quoted = isinstance(error, redis.exceptions.ResponseError) and _REFUSED.search(str(error)) is not None
    return quoted or isinstance(error, known)


def is_login_refused(error: Exception) -> bool:
    """Whether a connection is refused because nobody has logged in on it: no command that was sent there ran."""
    return isinstance(error, redis.exceptions.AuthenticationError)


def reason_of(error: Exception) -> str:
    """Return the text of an error, or a description if it has none.

    asyncio and ssl raise errors with an empty text; the message would have no reason.
    """
    if error.args and (text := str(error).strip()):
        return text
    if isinstance(error, (TimeoutError, redis.exceptions.TimeoutError)):
        return SLOW
    name = type(error).__name__
    lost = (ConnectionError, ssl.SSLError, redis.exceptions.ConnectionError)
    return f"the connection broke ({name})" if isinstance(error, lost) else name


def _untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The error of a certificate, if that is the cause."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def broken(error: Exception) -> bool:
    """Return whether the connection broke (rather than the server being slow, loading or refusing)."""
    lost = (redis.exceptions.ConnectionError, OSError)
    slow = (redis.exceptions.TimeoutError, redis.exceptions.BusyLoadingError, TimeoutError)
    return isinstance(error, lost) and not isinstance(error, slow)


def promises(command: Command[Any]) -> bool:
    """Return whether its answer is a promise to a caller."""
    return bool(command.script) and scripts.load(command.script).promise


def once(command: Command[Any]) -> bool:
    """Return whether it must not be sent again after its reply was lost, because an owner continues as the next
    incarnation.

    A claim, which names no incarnation, is sent again.
    """
    if not command.script:
        return command.once
    return scripts.load(command.script).fenced and "#" in str(command.args[0])


#: The refusal of a script's first line by a server older than Redis 7.0.
_TOO_OLD: Final = re.compile(r"Error compiling script.*near '#'")


def too_old(version: str) -> str:
    """Return the sentence about a server that is too old for the scripts."""
    return f"delayq needs Redis 7.0 or Valkey; this is {version}"


def _read_version(reply: Any) -> StoreError:
    info = reply.decode(errors="replace") if isinstance(reply, bytes) else ""
    found = re.search(r"^redis_version:(\S+)", info, re.MULTILINE)
    return StoreError(too_old(found.group(1) if found else "an older server"))


#: Sent in place of a script that a server is too old for: its answer is the error with the version.
WHICH_VERSION: Final = plain("INFO", "server", read=_read_version)


def instead(command: Command[Any], error: Exception) -> Command[Any] | None:
    """The question in place of a refused script, if the refusal has no reason; None for any other error.

    Its answer is the error of the script.
    """
    if _TOO_OLD.search(str(error)):
        return WHICH_VERSION
    if command.script and command.keys and _NAMELESS.search(str(error)):
        return lacking_of(command, str(translate(error)))
    return None


def outdates(error: Exception) -> bool:
    """Whether all former connections are useless: the name may lead to another server now.

    This is the only rule for it, for calls, pools, subscriptions and clusters.
    """
    return isinstance(error, (WrongServer, redis.exceptions.ReadOnlyError, redis.exceptions.BusyLoadingError))


def misled(command: Command[Any], answer: Any) -> bool:
    """Return whether an answer shows that the server is not the primary."""
    return command.misled is not None and not isinstance(answer, StoreError) and command.misled(answer)


def pack(command: Command[Any], state: ServerState) -> bytes:
    """Return the command as it is sent."""
    name, keys, args = command.script, command.keys, command.args
    if not name:
        if state.development and args == ("TIME",):
            return packed("EVAL", scripts.load("time", True).text, 0, "")
        return packed(*args)
    script = scripts.load(name, True) if state.development else scripts.load(name)
    deadline = (state.deadline(),) if script.promise else ()
    if name in state.loaded:
        return packed("EVALSHA", script.sha, len(keys), *keys, *args, *deadline)
    state.loaded.add(name)  # the server keeps the complete script
    return packed("EVAL", script.text, len(keys), *keys, *args, *deadline)


def as_not_done(error: Exception) -> StoreError:
    """Return the error of a call that certainly did not run: it was never sent."""
    told = translate(error)
    return NotDone(*told.args) if type(told) is StoreUnavailable else told


def as_unknown(error: StoreError) -> StoreError:
    """Return the error of a call that did not run now, but may have run when it was sent before."""
    return StoreUnavailable(*error.args) if isinstance(error, (NotDone, StoreRefused)) else error


class Exchange:
    """Commands on their way: unsent ones, sent ones without an answer, and the answers, in order."""

    def __init__(self, commands: Iterable[Command[Any]], state: ServerState, until: float = inf) -> None:
        self.state = state
        self.until = until  # by the precise monotonic clock; a later answer is not read
        self.waiting: deque[tuple[int, Command[Any], int]] = deque()
        self.answers: list[Any] = []
        self._commands = iter(commands)
        self._callers: Exception | None = None  # an error of the caller's iterable of commands
        self._again: deque[tuple[int, Command[Any]]] = deque()
        self._bytes = 0
        self._replies = 0
        self._replies_at_last_break = -1
        self._question: Command[None] | None = None  # questions for the clock that are not answered
        self._late: set[int] = set()  # refused once because their deadline had passed
        self._unsure: set[int] = set()  # sent on a connection that broke before they were answered
        self.wrong: WrongServer | None = None  # the reason to leave the connection once all commands are answered
        self.misled = False  # an answer shows that the server is not the primary: the connection is left at the end
        # Refused by the wrong server, so that they did not run.
        self._refused_there: list[tuple[int, Command[Any]]] = []
        self._ran_behind = False  # a command after those that the wrong server refused has an answer

    def to_send(self) -> Iterator[bytes]:
        """Yield packets; after each, replies must be read while the exchange is `full`. After a break, it continues
        where it was.
        """
        packet: list[bytes] = []
        size = 0
        while self._again or self._draw():
            index, command = self._again[0]
            if promises(command) and self.state.stale:
                self._question = self.state.ask()
                yield b"".join((*packet, self._sent(NO_PLACE, self._question)))
                packet, size = [], 0
                if self.wrong is not None:
                    return
            self._again.popleft()
            packet.append(self._sent(index, command))
            size += len(packet[-1])
            if size >= PACKET or self.full:
                yield b"".join(packet)
                packet, size = [], 0
                if self.wrong is not None:
                    return
        if packet:
            yield b"".join(packet)

    def _draw(self) -> bool:
        try:
            command = next(self._commands, None)
        except Exception as error:  # noqa: BLE001  # of the caller's data base, for example: it is raised once all sent commands are answered
            raise_if_interrupt(error)
            self._callers = error
            self._commands = iter(())
            return False
        if command is None:
            return False
        self._again.append((len(self.answers), command))
        self.answers.append(UNANSWERED)
        return True

    def _sent(self, index: int, command: Command[Any]) -> bytes:
        whole = pack(command, self.state)
        self.waiting.append((index, command, len(whole)))
        self._bytes += len(whole)
        return whole

    @property
    def full(self) -> bool:
        """Return whether replies must be read before more is sent: a deadline needs the clock of the server.

        Commands with a deadline are sent at once: a process that is stopped meanwhile must have no rest to send later.
        """
        much = len(self.waiting) >= AHEAD or self._bytes >= AHEAD_BYTES
        return self._question is not None or (much and self.until == inf)

    def take(self) -> tuple[int, Command[Any]]:
        """Return the command whose reply has come."""
        index, command, size = self.waiting.popleft()
        self._bytes -= size
        if command is self._question:
            self._question = None
        else:
            self._replies += 1
        return index, command

    def answered(self, reply: Any) -> bytes | None:
        """Handle the next reply. Return bytes to send at once, if any."""
        index, command = self.take()
        if isinstance(reply, WrongServer):
            self.wrong = reply
            self._replies -= index != NO_PLACE  # a command that is refused here makes no progress
            if self.is_callers(index):
                self._refused_there.append((index, command))
            return None
        self._ran_behind = self._ran_behind or (self.wrong is not None and self.is_callers(index))
        if isinstance(reply, Exception):
            return self._refused(index, command, reply)
        answer = read_reply(command, reply)
        self._put(index, as_unknown(answer) if isinstance(answer, StoreError) and index in self._unsure else answer)
        self.misled = self.misled or misled(command, answer)
        return None

    def is_callers(self, index: int) -> bool:
        """Return whether a command is one of the caller's, and not one that was sent beside them."""
        return index != NO_PLACE

    def _refused(self, index: int, command: Command[Any], error: Exception) -> bytes | None:
        if isinstance(error, redis.exceptions.NoScriptError):  # nothing ran: the complete script is sent instead
            self.state.loaded.discard(command.script)
            return self._sent(index, command)
        if (time := late_by(error)) is not None:
            self.state.learn(time)
            if index not in self._late:  # the clock of the server was set forward, or it was slow, and the caller waits
                self._late.add(index)
                return self._sent(index, command)
        if (other := instead(command, error)) is not None:
            return self._sent(index, other)
        if isinstance(error, redis.exceptions.MovedError | redis.exceptions.ClusterCrossSlotError):
            error = WrongKind.of("cluster", "redis")  # its user may not run HELLO
        told = StoreError(too_old("an older server")) if command is WHICH_VERSION else translate(error)
        self._put(index, as_unknown(told) if index in self._unsure else told)
        return None

    def _put(self, index: int, answer: Any) -> None:
        if index != NO_PLACE:
            self.answers[index] = answer

    @property
    def done(self) -> bool:
        """Return whether nothing must be sent after the answers."""
        return True

    def result(self) -> list[Any]:
        """Return the answers at the end. Raises the exception of the caller's own iterable."""
        if self._callers is not None:
            raise self._callers
        return self.answers

    def broke(self, error: Exception) -> bool:
        """Return whether to continue with a new connection; if not, everything without an answer gets the error.

        Commands without an answer are sent once more, unless nothing was answered since the last such time. If an
        owner's call is among it nothing is, nor what stands behind: its owner sends that as the next incarnation.
        """
        refused = self._left()
        sent = [(index, command) for index, command, _ in self.waiting if index != NO_PLACE]
        again = bool(self.waiting or refused) and (broken(error) or isinstance(error, WrongServer))
        again = again and self._replies > self._replies_at_last_break
        again = again and not any(once(command) for _, command in (*refused, *sent))
        self._replies_at_last_break = self._replies
        if not is_login_refused(error):
            self._unsure.update(index for index, _ in sent)
        if again:
            self._again.extendleft(reversed((*refused, *sent)))
        else:
            unknown, not_done = as_unknown(translate(error)), as_not_done(error)
            for index, _ in refused:
                self._put(index, as_unknown(not_done) if index in self._unsure else not_done)
            for index, answer in enumerate(self.answers):
                if answer is UNANSWERED:
                    self.answers[index] = unknown if index in self._unsure else not_done
            self.answers.extend(not_done for _ in self._commands)
        self.waiting.clear()
        self._question = None
        self.state.forget()
        self._bytes = 0
        return again

    def _left(self) -> list[tuple[int, Command[Any]]]:
        """Leave the connection: return the commands that the wrong server refused and that may be sent again, in order.

        If a later command ran there after all, the refused ones would run too late.
        """
        wrong, refused, ran_behind = self.wrong, self._refused_there, self._ran_behind
        self.wrong, self._refused_there, self._ran_behind = None, [], False
        if wrong is None or not ran_behind:
            return refused
        for index, _ in refused:
            told = translate(wrong)
            self._put(index, as_unknown(told) if index in self._unsure else told)
        return []


UNANSWERED: Final = object()
#: No answer of the caller belongs to it.
NO_PLACE: Final = -1


#: The errors of code that reads a malformed reply.
UNREADABLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    DelayqError,
    msgspec.MsgspecError,
    struct.error,
)


def read_reply(command: Command[T], reply: Any) -> T | StoreError:
    try:
        return command.read(reply)
    except UNREADABLE as error:
        raise_if_interrupt(error)
        return StoreError(f"cannot read the reply of {command.script or 'a command'}: {error!r}")


def all_good(answers: Iterable[T | StoreError]) -> list[T]:
    """Return the answers. Raises the first StoreError among them."""
    good = []
    for answer in answers:
        if isinstance(answer, StoreError):
            raise answer
        good.append(answer)
    return good


def single(answers: list[T | StoreError]) -> T:
    (answer,) = answers
    if isinstance(answer, StoreError):
        raise answer
    return answer
