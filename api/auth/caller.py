"""The permissions of a caller: everything without API keys, otherwise those of its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from api.auth.rates import Bucket
from api.wire.problems import Problem
from delayq import InvalidMessage, Message
from delayq.base.remembered import Remembered
from delayq.domain.api_keys import SCOPES, ApiKey, Scope
from delayq.domain.message import ORIGIN_PROPERTY, check_topic, from_key
from delayq.domain.patterns import check_pattern, compiled, covers, is_pattern
from delayq.store.commands import Found
from delayq.store.keys import Layout, ids_ending, new_id

_ALL: Final = frozenset(SCOPES)
_NONE: Final[frozenset[str]] = frozenset()
#: Topics come from outside, so the number of remembered topics is bounded.
TOPICS: Final = 1_000


def _made(prefix: str) -> Iterator[str]:
    """Make ids with the prefix of a key. A hundred ids in a row share a suffix, so that their messages share scripts."""
    while True:
        for id in islice(ids_ending(Layout.random_suffix()), 100):
            yield prefix + id


class Caller:
    """The caller and its permissions. `foreign` are the id prefixes of other keys; `session` is true for a session."""

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
            (compiled(pattern), frozenset(scopes))
            for pattern, scopes in (key.scopes.items() if key is not None else ())
        ]
        #: The scopes on every topic, existing or not.
        self.everywhere = _ALL if key is None else frozenset().union(*(key.scopes.get("*", ()),))
        self._known: Remembered[str, frozenset[str]] = Remembered(TOPICS)
        self._made = _made(key.ids if key is not None else "")
        self.quota = key.pending if key is not None else None

    def within_session(self, key: ApiKey) -> Caller:
        """Return the caller of a session, with the same rate, which may do what `key` may."""
        return Caller(key, self._foreign, self.bucket, session=True)

    def on(self, topic: str) -> frozenset[str]:
        """Return the scopes on a topic; nothing if the topic is not one of the caller's."""
        if self.key is None:
            return _ALL
        try:
            return self._known[topic]
        except KeyError:
            pass
        found = _NONE.union(*(scopes for pattern, scopes in self._patterns if pattern.match(topic)))
        return self._known.keep(topic, found)

    def patterns(self, scope: Scope) -> tuple[str, ...] | None:
        """Return the patterns of the topics that a scope covers, or None for all topics."""
        if self.key is None or self.everything(scope):
            return None
        return tuple(pattern for pattern, scopes in self.key.scopes.items() if scope in scopes)

    def everything(self, scope: Scope) -> bool:
        """Return whether a scope covers every message: all topics and all ids."""
        return scope in self.everywhere

    def need_everywhere(self, scope: Scope) -> None:
        """Raise Problem if the call concerns all topics and the caller may not."""
        if scope not in self.everywhere:
            raise Problem("forbidden", f"The call concerns all topics. It needs a key with {scope!r} on '*'.")

    def need(self, scope: Scope, topic: str) -> None:
        """Raise Problem unless the scope covers a topic that the caller named."""
        if scope not in self.on(topic):
            raise Problem("forbidden", f"This key has no {scope!r} on the topic {topic!r}.", field="topic")

    def need_if_named(self, scope: Scope, pattern: str) -> None:
        """Raise Problem if a pattern is a single topic that the scope does not cover. Other patterns match less."""
        if pattern and not is_pattern(pattern):
            self.need(scope, pattern)

    def has(self, scope: Scope, match: str) -> bool:
        """Return whether one pattern of the caller covers all topics of a pattern."""
        if self.key is None:
            return True
        return any(scope in scopes and covers(pattern, match) for pattern, scopes in self.key.scopes.items())

    def need_on_all(self, scope: Scope, match: str) -> None:
        """Raise Problem unless the scope covers all topics of a pattern."""
        check_pattern(match)
        if not self.has(scope, match):
            detail = f"The key needs {scope!r} on a pattern that covers {match!r}."
            raise Problem("forbidden", detail, field="match")

    def need_in_stream(self, scope: Scope, topic: str, sharing: Iterable[str]) -> None:
        """Raise Problem unless the scope covers a topic, and the patterns of all topics that share its stream.

        The messages of a shared stream are received together, whatever their topics are.
        """
        self.need(scope, topic)
        for match in sharing:
            if not self.has(scope, match):
                detail = (
                    f"Messages of {match!r} are in the same stream as those of {topic!r}, because their routes say so. "
                )
                detail += f"This call needs a key with {scope!r} on a pattern that covers {match!r}."
                raise Problem("forbidden", detail, field="topic")

    def sees(self, found: Found) -> bool:
        """Return whether the caller may know that a message of this topic or id exists."""
        if found.known_topic is not None:
            return bool(self.on(found.known_topic)) or (found.record is None and self._owns_id(found.id))
        return bool(self.everywhere) or self._owns_id(found.id)

    def lacks(self, scope: Scope, found: Found) -> bool:
        """Return whether the caller may read the message but has no such scope. How its own ids end, each key may know."""
        topic = found.known_topic
        return (
            topic is not None
            and scope not in self.on(topic)
            and (found.record is not None or not self._owns_id(found.id))
        )

    def _owns_id(self, id: str) -> bool:
        """Return whether an ended message belongs to the caller by its id, whatever its topic is."""
        return self.key is not None and bool(self.key.ids) and id.startswith(self.key.ids)

    def count(self, messages: int) -> None:
        """Count a batch as this many requests. One request was already counted."""
        if self.bucket is not None and messages > 1:
            self.bucket.take(messages - 1)

    def takes(self, message: Message) -> Message:
        """Check that the caller may schedule the message, under an id of its own. Raises Problem and InvalidMessage."""
        if self.key is None:
            return message
        allowed = self._known.get(message.topic)
        if allowed is None:
            check_topic(message.topic)
        if allowed is None or "schedule" not in allowed:
            self.need("schedule", message.topic)
        self._check_prefixes(message)
        own = self.key.ids
        if message.id is None:
            if own:
                # For an ordering key, the library appends its hash.
                made = own + new_id() if message.ordering_key else next(self._made)
                message = msgspec.structs.replace(message, id=made)
        elif not message.id.startswith(own):
            raise InvalidMessage("id", f"ids of this key must begin with {own!r}")
        return self._counted(message)

    def hands_back(self, message: Message) -> Message:
        """Check that the caller may schedule a delivered message again. Raises Problem.

        The id of the next message begins with the first id, and the caller gives both. So only a key with the same `ids`
        may hand back a message of such a key. Any other key could take the id of a later hand-back.
        """
        check_topic(message.topic)
        self.need("schedule", message.topic)
        self._check_prefixes(message)
        return self._counted(message)

    def _check_prefixes(self, message: Message) -> None:
        """Raise Problem if the id, or the first id of a message that is handed back, belongs to another key."""
        if not self._foreign:
            return
        for field, id in (("id", message.id), ("properties", message.properties.get(ORIGIN_PROPERTY))):
            if id is not None and id.startswith(self._foreign):
                detail = "Ids with this prefix belong to another key. Use a key that has the same `ids`, or another id."
                raise Problem("forbidden", detail, field=field, id=message.id or "")

    @property
    def reserved(self) -> tuple[str, ...]:
        """The keys by which delayq counts the messages of a caller whose name has a quota."""
        return () if self.key is None or self.quota is None else (from_key(self.key.name),)

    def _counted(self, message: Message) -> Message:
        reserved = self.reserved
        return msgspec.structs.replace(message, reserved=reserved) if reserved else message


ANYBODY: Final = Caller()
