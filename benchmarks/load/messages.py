"""Realistic messages: bodies of 200 bytes of varied text, tags, business keys, due times spread over a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from delayq.domain.message import Limits, Message

BODY_BYTES: Final = 200
DAY: Final = 86_400_000
LIMITS: Final = Limits()
QUEUES: Final = 16
TOPICS: Final = (
    "order.cancel", "order.review", "order.dispatch", "order.remind",
    "coupon.expire", "payment.check", "courier.reassign", "invoice.send",
)  # fmt: skip
_TAGS: Final = ("unpaid", "review", "express", "refund", "weekend", "vip")
_WORDS: Final = """
    order customer courier restaurant address payment coupon refund delivery minutes street building floor door
    please ring the bell leave at reception no cash card paid waiting cancelled accepted picked up delayed rain
    two three dozen large small spicy without onions extra sauce receipt invoice company name telephone after
    before noon evening tomorrow yesterday because nobody answered second attempt review five stars thank you
"""

#: A function that chooses the due time of a message (Unix ms).
Due = Callable[[random.Random], int]


def _text(size: int) -> str:
    chooser, vocabulary = random.Random(7), _WORDS.split()
    words: list[str] = []
    length = 0
    while length < size:
        words.append(chooser.choice(vocabulary))
        length += len(words[-1]) + 1
    return " ".join(words)


_TEXT: Final = _text(1 << 17)


def spread(first: int, span: int) -> Due:
    """Random due times in the `span` ms from `first` on."""
    return lambda chooser: first + int(chooser.random() * span)


def make(count: int, due: Due, *, keys: int = 0, seed: int = 1, topics: tuple[str, ...] = TOPICS) -> Iterator[Message]:
    """Yield `count` messages with `keys` business keys each; the same arguments give the same messages."""
    chooser = random.Random(seed)
    for number in range(count):
        where = int(chooser.random() * (len(_TEXT) - BODY_BYTES))
        head = f"{seed}-{number:09d} "
        yield Message(
            topic=topics[where % len(topics)],
            tags=_TAGS[where % len(_TAGS)],
            keys=tuple(f"order-{seed}-{number:09d}-{key}" for key in range(keys)),
            body=head + _TEXT[where : where + BODY_BYTES - len(head)],
            expect_date=due(chooser),
        )
