"""Commands on their way: their answers and their errors."""

from __future__ import annotations

import re
import ssl
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from math import inf
from typing import Any, Final, TypeVar

import msgspec
import redis

from delayq.base.errors import DelayqError, NotDone, StoreError, StoreFull, StoreRefused, StoreUnavailable, WrongRedis
from delayq.base.interrupts import raise_if_interrupt
from delayq.store import scripts
from delayq.store.commands import Command, plain
from delayq.store.connect.durability import Durability
from delayq.store.connect.link import NO_PLACE, Link, Sent
from delayq.store.connect.server_state import SLOW, WrongKind, WrongServer, late_by
from delayq.store.rights import lacking_of

T = TypeVar("T")

#: Stands for an answer that has not come.
UNANSWERED: Final = object()
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


def as_not_done(error: Exception) -> StoreError:
    """Return the error of a call that certainly did not run: it was never sent."""
    told = translate(error)
    return NotDone(*told.args) if type(told) is StoreUnavailable else told


def as_unknown(error: StoreError) -> StoreError:
    """Return the error of a call that did not run now, but may have run when it was sent before."""
    return StoreUnavailable(*error.args) if isinstance(error, (NotDone, StoreRefused)) else error


class Exchange:
    """Commands on their way, and the answers in order: what a reply means, whichever servers the commands go to."""

    link: Link | None = None  # to the only server
    error: Exception | None = None  # the reason why this link is of no use
    misled = False  # an answer shows that the server is not the primary: the connection is left at the end
    _callers: Exception | None = None  # an error of the caller's iterable of commands
    _late: Set[int] = frozenset()  # refused once because their deadline had passed
    _unsure: Set[int] = frozenset()  # sent on a connection that broke before they were answered

    def __init__(
        self, commands: Iterable[Command[Any]], durability: Durability | None = None, until: float = inf
    ) -> None:
        self.durability = durability
        self.until = until  # by the precise monotonic clock; a later answer is not read
        self.answers: list[Any] = []
        self._commands = iter(commands)
        self._again: deque[Sent] = deque()
        self._unkept: dict[int, StoreError] = {}  # answered on a connection that broke before its barrier

    @property
    def on_its_way(self) -> bool:
        """Whether a store has replies to wait for, or has to send the commands once more."""
        return self.link is not None or self.error is not None

    def wanted(self) -> Iterator[Sent]:
        """Yield the commands to send again, then those of the caller. The wrong server gets no more."""
        while self.link is None or self.link.wrong is None:
            if self._again:
                yield self._again.popleft()
                continue
            try:
                command = next(self._commands, None)
            except Exception as error:  # noqa: BLE001  # of the caller's data base, for example: it is raised once all sent commands are answered
                raise_if_interrupt(error)
                self._callers = error
                self._commands = iter(())
                return
            if command is None:
                return
            self.answers.append(UNANSWERED)
            yield len(self.answers) - 1, command, None, False

    def answered(self, link: Link, reply: Any) -> bytes | None:
        """Handle the next reply of a link. Return bytes to send at once, if any."""
        sent = link.take()
        if isinstance(reply, Exception):
            again = self._refused(link, sent, reply)
            return link.again(again) if again is not None else None
        place, command, _, _ = sent
        answer = read_reply(command, reply)
        if place == NO_PLACE:
            return None
        if isinstance(answer, StoreError):
            self._put(place, answer)
            return None
        self.answers[place] = answer
        if link.barrier is not None:
            link.barrier.answered(place, command)
        if command.misled is not None and command.misled(answer):
            self.misled = True
        return None

    def _refused(self, link: Link, sent: Sent, error: Exception) -> Sent | None:
        place, command, node, asking = sent
        if isinstance(error, redis.exceptions.NoScriptError):  # nothing ran: the complete script is sent instead
            link.state.loaded.discard(command.script)
            return sent
        if isinstance(error, WrongServer):
            link.wrong = error
        if place == NO_PLACE:
            return None
        if (time := late_by(error)) is not None:
            link.state.learn(time)
            if place not in self._late:  # the clock of the server was set forward, or it was slow, and the caller waits
                self._late |= {place}
                return sent
        if (other := instead(command, error)) is not None:
            return place, other, node, asking
        self._did_not_run(link, sent, error)
        return None

    def _did_not_run(self, link: Link, sent: Sent, error: Exception) -> None:
        told = StoreError(too_old("an older server")) if sent[1] is WHICH_VERSION else as_not_done(error)
        self._put(sent[0], told)

    def _put(self, place: int, error: StoreError) -> None:
        """A command that was sent before may have run then, although it did not run now."""
        self.answers[place] = as_unknown(error) if place in self._unsure else error

    def _leave(self, link: Link) -> None:
        if link.barrier is not None:
            self._unkept.update(dict.fromkeys(link.barrier.uncovered, link.barrier.error()))

    def result(self) -> list[Any]:
        """Return the answers at the end, with an error for changes that are not confirmed to be kept.

        Raises the exception of the caller's own iterable.
        """
        if self._callers is not None:
            raise self._callers
        if self.link is not None:
            self._leave(self.link)
        for place, unkept in self._unkept.items():
            if not isinstance(self.answers[place], StoreError):
                self.answers[place] = unkept
        return self.answers


class SingleExchange(Exchange):
    """An exchange with one server. After a break, it continues where it was."""

    _answered_at_last_break = -1
    _refused_there: Sequence[Sent] = ()  # by the wrong server, so that they did not run

    def _did_not_run(self, link: Link, sent: Sent, error: Exception) -> None:
        if isinstance(error, WrongServer):
            self._refused_there = (*self._refused_there, sent)
            return
        if isinstance(error, redis.exceptions.MovedError | redis.exceptions.ClusterCrossSlotError):
            error = WrongKind.of("cluster", "redis")  # its user may not run HELLO
        super()._did_not_run(link, sent, error)

    def broke(self, error: Exception) -> bool:
        """Return whether to continue with a new connection; if not, everything without an answer gets the error.

        Commands without an answer are sent once more, unless nothing was answered since the last such time. If an
        owner's call is among it nothing is, nor what stands behind: its owner sends that as the next incarnation.
        """
        link, self.link, self.error = self.link, None, None
        waiting = [sent for sent, _ in link.waiting] if link is not None else []
        refused, self._refused_there = self._refused_there, ()
        if refused and any(answer is not UNANSWERED for answer in self.answers[refused[0][0] + 1 :]):
            for place, *_ in refused:  # a later command ran there after all: they would run too late
                self._put(place, as_not_done(error))
            refused = ()
        unanswered = [*refused, *(sent for sent in waiting if sent[0] != NO_PLACE)]
        answered = sum(answer is not UNANSWERED for answer in self.answers)
        again = bool(waiting or refused) and (broken(error) or isinstance(error, WrongServer))
        again = again and answered > self._answered_at_last_break
        again = again and not any(once(command) for _, command, _, _ in unanswered)
        self._answered_at_last_break = answered
        if not is_login_refused(error):
            self._unsure |= {place for place, *_ in waiting if place != NO_PLACE}
        if link is not None:
            self._leave(link)
            link.state.forget()
            if link.pending is not None:
                unanswered.append(link.pending)
        if again:
            self._again.extendleft(reversed(unanswered))
        else:
            not_done = as_not_done(error)
            for place, answer in enumerate(self.answers):
                if answer is UNANSWERED:
                    self._put(place, not_done)
            self.answers.extend(not_done for _ in self._commands)
        return again


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
