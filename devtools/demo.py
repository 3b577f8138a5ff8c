"""./dev up --demo: simulate a shop over HTTP, with its applications and operators.

Every run has the same events in the same second, because they come from a seed.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from devtools.calls import FAILURES, Call, send
from devtools.screen import Screen

SEED: Final = 18
#: Messages that are scheduled per second, besides those for later; and the total.
MOST_A_SECOND: Final = 50
MOST_MESSAGES: Final = 500_000
BATCH: Final = 1_000
#: ms
SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
#: seconds
DAY: Final = 86_400

#: A campaign is one burst: the number of messages within a second, their delay in ms, and the seconds until the next
#: campaign.
CAMPAIGN: Final = 20_000
CAMPAIGN_AHEAD: Final = 12 * MINUTE
CAMPAIGN_EVERY: Final = 15 * 60
#: Messages that fall due over the next day.
COUPONS: Final = 4_000
NEWSLETTERS: Final = 300
#: The share of orders that are paid, and the seconds until then. Paying cancels an order's reminders.
PAID: Final = 0.5
PAID_AFTER: Final = 10
#: The rate that a policy allows for codes. They are scheduled in bursts.
CODES_A_SECOND: Final = 2
CODES: Final = 24
CODES_EVERY: Final = 15

Body = dict[str, Any]


def live(api: str, stopped: threading.Event, screen: Screen) -> None:
    """Simulate one second of the shop in each second, until stopped or all messages are scheduled.

    While the API is unreachable, the shop waits. Each call may be repeated, because its messages have ids.
    """
    shop = Shop()
    for second in itertools.count():
        for call in shop.opening() if second == 0 else shop.second(second):
            if not _made(api, call, stopped, screen):
                return
        if shop.scheduled + CAMPAIGN + MOST_A_SECOND > MOST_MESSAGES:
            screen.say(f"--demo has scheduled {shop.scheduled:,} messages and stops scheduling", "info")
            return
        if stopped.wait(1):
            return


def _made(api: str, call: Call, stopped: threading.Event, screen: Screen) -> bool:
    """Make the call until it succeeds. Return False when everything stops."""
    told = False
    while not stopped.is_set():
        try:
            send(api, call)
        except FAILURES as error:
            if not told and not stopped.is_set():
                screen.say(f"--demo is waiting: {error}")
            told = True
            stopped.wait(1)
        else:
            return True
    return False


class Shop:
    """The calls of the API in each second."""

    def __init__(self, seed: int = SEED) -> None:
        self.scheduled = 0
        self._random = random.Random(seed)
        self._numbers = itertools.count(1_001)  # the numbers of orders and of their messages
        self._paid: deque[tuple[int, str]] = deque()  # the second, and the key of the order
        self._incomplete: deque[tuple[int, str]] = deque()  # the second of the first attempt, and the invoice
        self._coupons: deque[str] = deque()  # campaigns that wait

    def opening(self) -> Iterator[Call]:
        """Make the calls of the beginning: policies, failing topics and later messages."""
        for name, why, says in (
            ("sms", "the provider's limit", {"rate": CODES_A_SECOND}),
            ("labels", "paper is refilled within a minute", {"maxAttempts": 3, "backoff": ["30s"]}),
            ("orders", "the cash desk counts by app and web", {"index": ["topic", "tags"]}),
        ):
            yield Call(f"/v1/policies/{name}", {"match": f"{name}.*", **says}, "PUT", why)
        yield Call("/v1/topics:pause", {"match": "newsletter.*", "reason": "this week's template is wrong"})
        yield Call("/v1/topics:pause", {"match": "reviews.*", "reason": "the review pages move"})
        yield from self._batches(self._message("newsletter.weekly", 1, 5) for _ in range(NEWSLETTERS))
        yield from self._batches(self._day())
        yield from self._batches(self._campaign())
        yield Call("/v1/topics:resume", {"match": "reviews.*", "reason": "the review pages are back"})
        # Refused messages are scheduled first, so that the console has something to show.
        first = [self._invoice(0, complete=False) for _ in range(6)] + [self._payment(card="expired") for _ in range(9)]
        first += [self._label(paper="A6"), self._invoice(0, complete=True), self._label(paper="A5")]
        yield from self._batches({**one, "delayTime": SECOND} for one in first)

    def second(self, second: int) -> Iterator[Call]:
        """Make the traffic of one second, and sometimes the calls of an operator."""
        yield from self._batches(itertools.islice(self._traffic(second), MOST_A_SECOND))
        keys = []
        while self._paid and self._paid[0][0] <= second:
            keys.append(self._paid.popleft()[1])
        if keys:
            yield Call("/v1/messages:cancel", {"keys": keys})
        if second % CAMPAIGN_EVERY == 0:
            yield from self._batches(self._campaign())
        if second % 60 == 20 and self._incomplete and self._incomplete[0][0] <= second - 15:
            ids = [self._incomplete.popleft()[1]]
            yield Call("/v1/dead-letters:redrive", {"ids": ids}, reason="the customer gave the street")
        if second % 180 == 30 and self._coupons:
            ids = [self._coupons.popleft()]
            yield Call("/v1/messages:deliverNow", {"ids": ids}, reason="requested at the counter")

    def _batches(self, messages: Iterable[Body]) -> Iterator[Call]:
        left = iter(messages)
        while batch := list(itertools.islice(left, BATCH)):
            self.scheduled += len(batch)
            yield Call("/v1/messages:batch", {"messages": batch})

    def _traffic(self, second: int) -> Iterator[Body]:
        draw = self._random
        for _ in range(6):
            yield self._order(second)
        for _ in range(3):
            yield self._payment(card="expired" if draw.random() < 0.01 else "valid")
        for _ in range(3):
            yield self._message("mail.reminder", 1, 20, tags=draw.choice(("cart", "wishlist")))
        for _ in range(2):
            yield self._message("stock.release", 5, 30, orderingKey=f"shelf-{draw.randrange(12)}")
        yield self._invoice(second, complete=draw.random() > 0.03)
        yield self._label(paper="A6" if draw.random() < 0.03 else "A5")
        yield self._message("reviews.request", DAY, 2 * DAY)
        if second % CODES_EVERY == 0:
            for _ in range(CODES):
                yield self._message("sms.code", 1, 3)

    def _order(self, second: int) -> Body:
        order = self._message("orders.unpaid", 20, 90, tags=self._random.choice(("web", "web", "app")))
        key = f"order-{order['body']['number']}"
        order["keys"].append(key)
        order["body"]["total"] = self._random.randint(500, 25_000)
        if self._random.random() < PAID:
            self._paid.append((second + PAID_AFTER, key))
        return order

    def _payment(self, *, card: str) -> Body:
        payment = self._message("payments.capture", 2, 20)
        payment["body"]["card"] = card
        return payment

    def _invoice(self, second: int, *, complete: bool) -> Body:
        invoice = self._message("invoices.send", 1, 10)
        invoice["body"]["street"] = "Main Street 1" if complete else None
        if not complete:
            self._incomplete.append((second, invoice["id"]))
        return invoice

    def _label(self, *, paper: str) -> Body:
        label = self._message("labels.print", 1, 10)
        label["body"]["paper"] = paper
        return label

    def _day(self) -> Iterator[Body]:
        """Schedule the coupons of the next day, most of them around two hours from now."""
        draw = self._random
        for _ in range(COUPONS):
            hour = draw.choice((draw.gauss(5, 1.2), draw.gauss(16, 2.5), draw.uniform(0, 24)))
            second = int(max(hour, 0.3) * 3_600)
            coupon = self._message("coupons.expire", second, second)
            self._coupons.append(coupon["id"])
            yield coupon

    def _campaign(self) -> Iterator[Body]:
        begin = (int(time.time() * 1000) + CAMPAIGN_AHEAD) // MINUTE * MINUTE
        for place in range(CAMPAIGN):
            message = self._message("campaign.evening", 0, 0)
            del message["delayTime"]
            yield {**message, "expectDate": begin + place * SECOND // CAMPAIGN}

    def _message(self, topic: str, earliest: int, latest: int, **more: str) -> Body:
        """Return a message that is due between these seconds from now."""
        number = next(self._numbers)
        return {
            "topic": topic,
            "id": f"{topic.partition('.')[0]}-{number}",
            "keys": [f"customer-{self._random.randrange(500)}"],
            "delayTime": self._random.randint(earliest * SECOND, latest * SECOND),
            "body": {"number": number},
            **more,
        }
