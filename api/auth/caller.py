"""What a caller may do: everything where there are no keys, else what its key says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from itertools import islice
from typing import Final

import msgspec

from api.auth.rates import Bucket
from api.wire.problems import Problem
from delayq import InvalidMessage, Message
from delayq.api_keys import SCOPES, ApiKey, Scope
from delayq.message import check_topic, from_key
from delayq.patterns import check_pattern, covers
from delayq.remembered import Remembered
from delayq.store.commands import Found
from delayq.store.keys import Layout, ids_ending, new_id

__all__ = ["ANYBODY", "Caller"]

_ALL: Final = frozenset(SCOPES)
_NONE: Final[frozenset[str]] = frozenset()
#: Topics come from outside: what is remembered of them is bounded.
TOPICS: Final = 1_000


def _made(prefix: str) -> Iterator[str]:
    """Ids that begin as a key's have to. A hundred in a row share a suffix, so that their messages share scripts."""
    while True:
        for id in islice(ids_ending(Layout.random_suffix()), 100):
            yield prefix + id


class Caller:
    """Who asks, and what is theirs. `foreign` are the beginnings of ids that belong to others; `session`: by a session."""

    def __init__(
        self,
        key: ApiKey | None = None,
        foreign: tuple[str, ...] = (),
        bucket: Bucket | None = None,
        *,
        session: bool = False,
    ) -> None:
        self.key = key
        self.session = session
        self.hash = key.hash if key is not None else ""
        self.bucket = bucket
        self._foreign = foreign
        self._patterns = [
            (re.compile(translate(pattern)), frozenset(scopes))
            for pattern, scopes in (key.scopes.items() if key is not None else ())
        ]
        #: What is allowed on every topic there is, or may be.
        self.everywhere = _ALL if key is None else frozenset().union(*(key.scopes.get("*", ()),))
        self._known: Remembered[str, frozenset[str]] = Remembered(TOPICS)
        self._made = _made(key.ids if key is not None else "")
        self.quota = key.pending if key is not None else None

    def within_session(self, key: ApiKey) -> Caller:
        """The same with the same rate, coming by a session, which may do what `key` may."""
        return Caller(key, self._foreign, self.bucket, session=True)

    def on(self, topic: str) -> frozenset[str]:
        """What is allowed on a topic; nothing if it is not one of the caller's."""
        if self.key is None:
            return _ALL
        try:
            return self._known[topic]
        except KeyError:
            pass
        found = _NONE.union(*(scopes for pattern, scopes in self._patterns if pattern.match(topic)))
        return self._known.keep(topic, found)

    def patterns(self, scope: Scope) -> tuple[str, ...] | None:
        """The patterns of the topics on which it may do so; None if those are all."""
        if self.key is None or self.everything(scope):
            return None
        return tuple(pattern for pattern, scopes in self.key.scopes.items() if scope in scopes)

    def everything(self, scope: Scope) -> bool:
        """Whether it may do so to every message: those of all topics, and whatever begins an id."""
        return scope in self.everywhere

    def need_everywhere(self, scope: Scope) -> None:
        """Raise Problem for what concerns all topics, unless the caller may."""
        if scope not in self.everywhere:
            raise Problem("forbidden", f"This concerns all topics: it takes a key with {scope!r} on '*'.")

    def need(self, scope: Scope, topic: str) -> None:
        """Raise Problem unless the caller may do so on a topic that it named itself."""
        if scope not in self.on(topic):
            raise Problem("forbidden", f"This key has no {scope!r} on the topic {topic!r}.", field="topic")

    def need_if_named(self, scope: Scope, pattern: str) -> None:
        """The same where a pattern of topics is one topic; others find less by a pattern."""
        if pattern and not set(pattern) & set("*?"):
            self.need(scope, pattern)

    def has(self, scope: Scope, match: str) -> bool:
        """Whether it may do so on all topics that a pattern covers, by one pattern of its own."""
        if self.key is None:
            return True
        return any(scope in scopes and covers(pattern, match) for pattern, scopes in self.key.scopes.items())

    def need_on_all(self, scope: Scope, match: str) -> None:
        """Raise Problem unless it may do so on all topics that a pattern covers."""
        check_pattern(match)
        if not self.has(scope, match):
            detail = f"This takes a key with {scope!r} on a pattern that covers {match!r}."
            raise Problem("forbidden", detail, field="match")

    def sees(self, found: Found) -> bool:
        """Whether there is such a message, as far as the caller is concerned."""
        if found.record is not None:
            return bool(self.on(found.record.topic))
        return bool(self.everywhere) or self._owns_id(found.id)

    def lacks(self, scope: Scope, found: Found) -> bool:
        """Whether it sees a message with which it may not do so."""
        return found.record is not None and scope not in self.on(found.record.topic)

    def _owns_id(self, id: str) -> bool:
        """What has ended has no topic any more: then whose it was is told by its id alone."""
        return self.key is not None and bool(self.key.ids) and id.startswith(self.key.ids)

    def count(self, messages: int) -> None:
        """Let a batch count as so many requests: one was counted when it came."""
        if self.bucket is not None and messages > 1:
            self.bucket.take(messages - 1)

    def takes(self, message: Message) -> Message:
        """The message as this caller's, or Problem or InvalidMessage: it may schedule it, under an id of its own."""
        if self.key is None:
            return message
        allowed = self._known.get(message.topic)
        if allowed is None:
            check_topic(message.topic)
        if allowed is None or "schedule" not in allowed:
            self.need("schedule", message.topic)
        own = self.key.ids
        if message.id is None:
            if own:
                # With an ordering key, the library puts the hash of that behind it.
                made = own + new_id() if message.ordering_key else next(self._made)
                message = msgspec.structs.replace(message, id=made)
        elif own and not message.id.startswith(own):
            raise InvalidMessage("id", f"ids of this key begin with {own!r}")
        elif not own and message.id.startswith(self._foreign):
            raise InvalidMessage("id", "ids that begin so belong to another key")
        if self.quota is not None:
            message = msgspec.structs.replace(message, reserved=(from_key(self.key.name),))
        return message


ANYBODY: Final = Caller()
