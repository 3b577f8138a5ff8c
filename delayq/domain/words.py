"""The words of Redis that interfaces write differently: one table for Python, the HTTP API, the command line and the
console.

Scripts, hashes and streams keep the words on the left. Every reader of a reply translates it with `shown`, and every
sender of a word translates it back with `stored`. So everything above `delayq.store.commands` has only the words on the
right. Besides, `counted` writes a number of things in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SHOWN: Final[Mapping[str, str]] = {
    # states, and results of calls
    "in_flight": "inFlight",
    "removed_in_flight": "removedInFlight",
    "not_found": "notFound",
    "not_dead": "notDead",
    # counters
    "forwarded": "delivered",
    "cancelled_in_flight": "removedInFlight",
    "written_off": "writtenOff",
    # actions of the audit
    "deliver_now": "deliverNow",
    "put_policy": "putPolicy",
    "delete_policy": "deletePolicy",
    "delete_group": "deleteGroup",
    "write_off": "writeOff",
    "bump_era": "bumpEra",
    "undo_backfill": "undoBackfill",
}
#: The word of Redis for each state and action. Counters are only read, so `removedInFlight` is the state.
_STORED: Final = {word: name for name, word in SHOWN.items() if name not in ("forwarded", "cancelled_in_flight")}


def shown(word: str) -> str:
    """Return the word of the interfaces for a word of Redis."""
    return SHOWN.get(word, word)


def stored(word: str) -> str:
    """Return the word of Redis for a state or an action of the interfaces."""
    return _STORED.get(word, word)


def counted(number: int, one: str, many: str) -> str:
    """Return a number with the words for one thing or for many: '1 message waits', '2 messages wait'."""
    return f"{number} {one if number == 1 else many}"
