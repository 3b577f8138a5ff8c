"""Search, beside a plain list of what there is, while messages come, go and move between its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from delayq import Client, InvalidMessage, Message, Scheduled
from delayq.client.looking import search, search_by_key
from delayq.client.looking.search import Search, SearchPage, check_filter, takes
from delayq.client.looking.search_by_key import SearchByKey
from delayq.domain.codec import encode
from delayq.domain.message import Limits
from delayq.store import commands
from delayq.store.commands import QUEUE_STATES, REST, Command, Filter, Slice
from delayq.store.keys import KEYS, QueueKeys
from delayq.testing import ManualClock
from tests.support.amounts import amount
from tests.support.queues import EPOCH
from tests.support.servers import ServerUnderTest
from workers.queue.census import CensusTaker
from workers.queue.queue_context import Pace

QUEUES = 3
FUTURE = 4_000_000_000_000
#: Of each queue what is not later may be in flight.
WATERMARK = 5
PLACES = ("", "t:kafka", "k:kafka/key", "h:", "dead")
GENERATION = b"0000001"


@dataclass(frozen=True)
class Given:
    """A message as scripts leave it, put down by hand."""

    id: str
    queue: int
    place: str
    due: int
    topic: str
    tags: str = ""
    run: str = ""
    exposed: bool = False
    body: str = "x"

    @property
    def order(self) -> tuple[int, int, str, str]:
        return self.due, self.queue, self.place, self.id

    @property
    def state(self) -> str:
        if self.place:
            return "dead" if self.place == "dead" else "held" if self.place.startswith("h:") else "parked"
        if self.due >= FUTURE:
            return "retrying" if self.exposed else "scheduled"
        return "inFlight" if self.due <= WATERMARK else "due"

    def fits(self, wanted: Filter) -> bool:
        return (
            (not wanted.states or self.state in wanted.states)
            and (not wanted.topic or fnmatchcase(self.topic, wanted.topic))
            and (wanted.among is None or any(fnmatchcase(self.topic, one) for one in wanted.among))
            and wanted.tags in ("", self.tags)
            and (wanted.property is None or wanted.property == ("run", self.run))
            and self.id.startswith(wanted.id_prefix)
            and (wanted.due_from is None or self.due >= wanted.due_from)
            and (wanted.due_to is None or self.due < wanted.due_to)
        )


class World:
    """What there is, in Redis and as a plain list. Of several messages with an id the first counts."""

    def __init__(self, server: ServerUnderTest, there: Iterable[Given] = ()) -> None:
        server.flush()
        self._admin = server.admin
        self.all: dict[str, Given] = {}
        for queue in range(QUEUES):
            self._admin.hset(KEYS.queue(queue).state, "watermark", WATERMARK)
        for one in there:
            if one.id not in self.all:
                self.put(one)

    def _set(self, one: Given) -> tuple[QueueKeys, str, bytes]:
        keys = KEYS.queue(one.queue)
        if one.place == "dead":
            return keys, keys.dead, one.id.encode()
        key = keys.parked(one.place) if one.place else keys.queue
        return keys, key, one.id.encode() + b"\0" + GENERATION

    def put(self, one: Given) -> None:
        keys, key, member = self._set(one)
        properties = {"run": one.run} if one.run else {}
        message = Message(topic=one.topic, tags=one.tags, delay_time=0, body=one.body, properties=properties)
        self._admin.hset(keys.pool, one.id, GENERATION + b"%013d0" % one.due + encode(message, Limits()))
        self._admin.zadd(key, {member: one.due})
        if one.place not in ("", "dead"):
            self._admin.hset(keys.state, f"parked:{one.place}", "1")
        if one.exposed:
            self._admin.hset(keys.attempts, one.id, 0)
        self.all[one.id] = one

    def take_out(self, id: str) -> Given:
        one = self.all.pop(id)
        keys, key, member = self._set(one)
        self._admin.zrem(key, member)
        self._admin.hdel(keys.pool, id)
        self._admin.hdel(keys.attempts, id)
        return one

    def listed(self, wanted: Filter) -> list[str]:
        return [one.id for one in sorted(self.all.values(), key=lambda one: one.order) if one.fits(wanted)]


def nothing() -> None:
    pass


def pages(client: Client, wanted: Filter, limit: int, between: Callable[[], None] = nothing) -> Iterator[SearchPage]:
    """All pages, step by step."""
    token: str | None = None
    while True:
        page = Search(client.reading(), wanted, limit, token)
        client._run(page.begin())
        while page.goes_on(in_time=True):
            between()
            client._run(page.step())
        found = client._run(page.end())
        assert len(found.messages) <= limit
        yield found
        between()
        token = found.next_token
        if token is None:
            return


def ids(client: Client, wanted: Filter, limit: int = 100) -> list[str]:
    return [one.id for page in pages(client, wanted, limit) for one in page.messages]


TOPICS = ("orders.paid", "orders.late", "mail", "ma.l")
messages = st.builds(
    Given,
    id=st.integers(0, 40).map(lambda n: f"{'ab'[n % 2]}-{n:02}"),
    queue=st.integers(0, QUEUES - 1),
    place=st.sampled_from((*PLACES, "", "")),
    due=st.integers(1, 9) | st.integers(FUTURE, FUTURE + 8),
    topic=st.sampled_from(TOPICS),
    tags=st.sampled_from(("", "vip", "vi")),
    run=st.sampled_from(("", "7", "77")),
    exposed=st.booleans(),
).map(lambda one: replace(one, place=f"h:{one.topic}") if one.place == "h:" else one)
patterns = st.sampled_from(("*", "orders.*", "*.?aid", "ma?l", "*a*a*", "mail", "*l*", "?*?", "orders.paid*", "o*s*e"))
edges = st.none() | st.integers(1, 9) | st.integers(FUTURE, FUTURE + 8)
filters = st.builds(
    Filter,
    topic=st.just("") | patterns,
    among=st.none() | st.lists(patterns, min_size=1, max_size=2).map(tuple),
    tags=st.sampled_from(("", "", "vip")),
    property=st.sampled_from((None, None, ("run", "7"))),
    id_prefix=st.sampled_from(("", "", "a-", "b-1")),
    states=st.just(()) | st.lists(st.sampled_from(search.SEARCHED_STATES), unique=True).map(tuple),
    due_from=edges,
    due_to=edges,
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and pages of few messages, so that there are several of them."""
    for name, value in {"STEP": 6, "STEP_SETS": 2, "MOST_LOOKED": 12}.items():
        monkeypatch.setattr(search, name, value)


shared = settings(
    max_examples=amount(25, 500),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@shared
@given(there=st.lists(messages, max_size=25), wanted=filters, limit=st.integers(1, 12))
def test_pages_are_the_list_in_order(
    client: Client, valkey: ServerUnderTest, small: None, there: list[Given], wanted: Filter, limit: int
) -> None:
    world = World(valkey, there)
    assert ids(client, wanted, limit) == world.listed(wanted)
    for id, found in zip(world.all, client.get_many(list(world.all)), strict=True):
        place = world.all[id].place
        if found is not None and place in ("", "dead"):  # of others, only where they stand tells when they are due
            died = replace(world.all[id], due=found.ended) if found.ended is not None else world.all[id]
            assert takes(wanted, found) == died.fits(wanted)


@shared
@given(data=st.data(), there=st.lists(messages, min_size=5, max_size=25), limit=st.integers(1, 12))
def test_what_stays_is_on_one_page_whatever_comes_and_goes(
    client: Client, valkey: ServerUnderTest, small: None, data: st.DataObject, there: list[Given], limit: int
) -> None:
    world = World(valkey, there)
    wanted = data.draw(filters.map(lambda one: Filter(topic=one.topic, id_prefix=one.id_prefix, states=one.states)))
    stays = {one.id for one in world.all.values() if one.fits(wanted)}
    moved: set[str] = set()
    left = 30  # else they might come for ever

    def change() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            return
        one = data.draw(st.none() | messages)
        if one is None:
            return
        if one.id in world.all:
            gone = world.take_out(one.id)
            stays.discard(one.id)
            moved.add(one.id)
            if gone.queue == one.queue:  # it moves: a message never changes its queue
                world.put(one)
        elif one.id not in moved:
            moved.add(one.id)
            world.put(one)

    seen = [one.id for page in pages(client, wanted, limit, change) for one in page.messages]
    assert [id for id in stays if seen.count(id) != 1] == []
    assert {id for id in seen if seen.count(id) > 1} <= moved
    assert set(seen) <= stays | moved


@shared
@given(there=st.lists(messages, max_size=25), wanted=filters, step=st.integers(1, 4))
def test_counts_and_forecasts_are_those_of_the_list(
    client: Client, valkey: ServerUnderTest, there: list[Given], wanted: Filter, step: int
) -> None:
    world = World(valkey, there)
    whole = Filter(due_from=wanted.due_from, due_to=wanted.due_to)
    for states in ((), ("dead",), QUEUE_STATES, ("parked",), ("held",), ("held", "parked")):
        asked = replace_struct(whole, states=states)
        if asked.due_from is None or asked.due_to is None or asked.due_from < asked.due_to:
            for few in (asked, replace_struct(asked, topic=wanted.topic)):
                counted = client.count(few)
                assert (counted.messages, counted.exact) == (len(world.listed(few)), True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    "delayq.client.looking.counting.LIVE", -1
                )  # as if there were too many to look at each of them
                counted = client.count(asked)
            assert counted.messages == len(world.listed(asked))
            aside = any(world.all[id].state in ("parked", "held") for id in world.listed(asked))
            by_sets = asked.due_from is not None or asked.due_to is not None
            by_sets |= len(states) == 1 and any(one.state == "held" for one in world.all.values())
            assert counted.exact == (not (aside and by_sets))
    dues = [one.due for one in world.all.values() if not one.place]
    for span, wide in ((8_000, step * 1_000), (8 * step, step)):
        edges = client.forecast(FUTURE, FUTURE + span, wide)
        assert (edges.exact, edges.edges) == (True, [*range(FUTURE, FUTURE + span, wide), FUTURE + span])
        assert edges.messages == [sum(a <= due < b for due in dues) for a, b in pairwise(edges.edges)]
        some = client.forecast(FUTURE, FUTURE + span, wide, Filter(topic=wanted.topic))
        assert (some.exact, some.as_of) == (True, None)
        listed = [world.all[id] for id in world.listed(Filter(topic=wanted.topic))]
        dues_of_topic = [one.due for one in listed if not one.place]
        assert some.messages == [sum(a <= due < b for due in dues_of_topic) for a, b in pairwise(some.edges)]


@settings(shared, max_examples=amount(12, 500))
@given(there=st.lists(messages, max_size=25), most=st.sampled_from((1, 2, 9)), wanted=filters)
def test_counts_by_a_census_are_those_of_the_list_or_not_known(
    client: Client, valkey: ServerUnderTest, there: list[Given], most: int, wanted: Filter
) -> None:
    world = World(valkey, there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.queue.census.MOST_TOPICS", most)
        patch.setattr("delayq.client.looking.counting.LIVE", -1)  # as if there were too many to look at each of them
        rest = any(take_census(client, queue) for queue in range(QUEUES))
        in_past = [one for one in world.all.values() if one.place or one.due < FUTURE]
        aside = ("parked", "held")  # of a topic of which some are held a census takes all that are set aside for held
        for topic in ("", *TOPICS, wanted.topic):
            for states in ((), ("dead",), ("due",), ("inFlight", "retrying"), ("scheduled",), aside):
                asked = Filter(topic=topic, among=wanted.among, states=states)
                if not topic and wanted.among is None and (not states or states in (("dead",), aside)):
                    continue  # sorted sets tell
                counted = client.count(asked).messages
                assert counted == len(world.listed(asked)) or (counted is None and rest)
                later = replace_struct(asked, due_from=wanted.due_from, due_to=wanted.due_to)
                if later.due_from is not None and later.due_to is not None and later.due_from >= later.due_to:
                    continue
                counted = client.count(later).messages
                if counted is None:
                    assert rest or in_past
                elif later.due_from is None and later.due_to is None:
                    assert counted == len(world.listed(later))
                elif later.due_from is not None and later.due_from >= FUTURE:
                    assert counted <= len(world.listed(asked))  # they are spread over a bucket of years
                else:
                    assert later.due_from is None or not any(one.fits(asked) for one in in_past)


def take_census(client: Client, queue: int) -> bool:
    """Whether it has topics that it did not count by their names."""
    clock = ManualClock()
    keys = KEYS.queue(queue)
    taker = CensusTaker(keys, EPOCH, clock, Pace(clock))
    for _ in range(10):
        clock.advance(1_000)
        if (command := taker.ask()) is not None:
            taker.take(cast(Slice | bool, client.store.run(cast(Command[Any], command))))
    found = client.store.run(commands.census(keys))
    return found is not None and REST in found.topics


def test_a_page_looks_at_a_bounded_number_and_tells_a_bounded_size(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(valkey)
    for number in range(200):
        world.put(Given(f"m-{number:03}", number % QUEUES, "", FUTURE + number, "t"))
    monkeypatch.setattr(search, "STEP", 10)
    monkeypatch.setattr(search, "MOST_LOOKED", 50)
    found = list(pages(client, Filter(), 1_000))
    assert 4 <= len(found) <= 8
    assert max(page.looked for page in found) <= 60
    with monkeypatch.context() as patch:
        for name in ("SECONDS", "MOST_SECONDS"):
            patch.setattr(search, name, 0)  # each set is heard all the same
        page = client.search(Filter(topic="other"))
    assert (page.looked, page.next_token is None) == (9, False)
    monkeypatch.setattr(search, "MOST_BYTES", 20)
    assert max(len(page.messages) for page in pages(client, Filter(), 100)) < 40


@pytest.mark.parametrize(
    "wanted", [Filter(topic="late"), Filter(tags="x"), Filter(id_prefix="z"), Filter(property=("run", "7"))]
)
def test_a_page_is_empty_and_not_the_last_only_if_its_time_was_not_enough(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, wanted: Filter
) -> None:
    world = World(valkey)
    for number in range(300):
        world.put(Given(f"m-{number:03}", number % QUEUES, "", FUTURE + number, "t"))
    monkeypatch.setattr(search, "STEP", 10)
    monkeypatch.setattr(search, "MOST_LOOKED", 50)
    monkeypatch.setattr(search, "MOST_SECONDS", 3_600)
    nothing_fits = client.search(wanted)
    assert (nothing_fits.messages, nothing_fits.looked, nothing_fits.next_token) == ([], 300, None)
    for place in ("", "dead", "t:x"):
        late = Given("z-late", 1, place, FUTURE + 500, "late", "x", "7")
        world.put(late)
        assert [one.id for one in client.search(wanted, 1).messages] == ["z-late"]
        world.take_out("z-late")
    monkeypatch.setattr(search, "MOST_SECONDS", 0)
    page = client.search(wanted)
    assert (page.messages, page.next_token is None) == ([], False)


def test_whoever_may_know_of_some_topics_is_told_of_looks_at_these_only(
    client: Client, valkey: ServerUnderTest
) -> None:
    world = World(valkey)
    for number in range(40):
        place = ("", "dead", "t:streams")[number % 3]
        topic = "orders.paid" if number % 4 else "mail"
        world.put(Given(f"m-{number:03}", number % QUEUES, place, FUTURE + number, topic))
    orders = ("orders.*",)
    assert client.search().looked == 40
    assert client.search(Filter(among=orders)).looked == 30
    assert client.search(Filter(among=orders, tags="none")).looked == 30
    assert client.search(Filter(among=orders, topic="orders.x*")).looked == 30
    assert client.search(Filter(among=("ma*",), topic="orders.*")).looked == 10
    assert client.search(Filter(among=("nobody",))).looked == 0


def test_large_messages_beyond_what_was_read_hold_no_page_up(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(valkey)
    for number in range(1_200):  # nearly all of them in one queue
        world.put(Given(f"m-{number:04}", 0 if number % 12 else 1, "", FUTURE + number, "t"))
    for number in range(20):
        world.put(Given(f"z-{number:02}", number % QUEUES, "", FUTURE + 2_000, "fat", body="x" * 50_000))
    monkeypatch.setattr(search, "MOST_BYTES", 110_000)
    found = list(pages(client, Filter(topic="fat"), 1_000))
    assert [one.id for page in found for one in page.messages] == world.listed(Filter(topic="fat"))
    assert [len(page.messages) for page in found if page.messages] == [2] * 10
    assert len(found) == 10
    assert all(one.record is not None for page in found for one in page.messages)


def test_thousands_in_one_ms_are_paged_through(client: Client, valkey: ServerUnderTest) -> None:
    world = World(valkey)
    of_queue: dict[int, list[str]] = {}
    count = amount(6_000, 30_000)
    for number in range(count):
        one = Given(f"m-{number:05}", number % QUEUES, "", FUTURE, "t")
        world.all[one.id] = one
        of_queue.setdefault(one.queue, []).append(one.id)
    raw = GENERATION + b"%013d0" % FUTURE + encode(Message(topic="t", delay_time=0, body="x"), Limits())
    for queue, ids_of_it in of_queue.items():
        keys = KEYS.queue(queue)
        for first in range(0, len(ids_of_it), 1_000):
            some = ids_of_it[first : first + 1_000]
            valkey.admin.hset(keys.pool, mapping=dict.fromkeys(some, raw))
            valkey.admin.zadd(keys.queue, {id.encode() + b"\0" + GENERATION: FUTURE for id in some})
    found = list(pages(client, Filter(), 1_000))
    assert [one.id for page in found for one in page.messages] == world.listed(Filter())
    assert len(found) <= count / 1_000 + 5
    assert max(page.looked for page in found) <= 3_000


def keyed(client: Client, count: int) -> list[Message]:
    made = [
        Message(
            id=f"m-{number:03}",
            topic="a" if number % 7 else "b",
            expect_date=2_000_000_000_000 - number,
            keys=("k",) if number % 3 else ("k", "l"),
        )
        for number in range(count)
    ]
    assert all(isinstance(one, Scheduled) for one in client.schedule_many(made))
    return made


@pytest.mark.parametrize("limit", [1, 1_000])
def test_all_messages_with_a_business_key_are_paged_through(
    client: Client, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(search_by_key, "IDS", 5)
    monkeypatch.setattr(search_by_key, "MOST_READ", 4)
    made = keyed(client, 60)
    for key, topic in (("k", ""), ("k", "b"), ("l", "a"), ("m", "")):
        wanted = Filter(key=key, topic=topic)
        fits = [str(one.id) for one in made if key in one.keys and topic in ("", one.topic)]
        found = list(all_of(client, wanted, limit))
        assert [id for page in found for id in sorted(one.id for one in page.messages)] == fits
        for page in found:
            dues = [one.due for one in page.messages if one.due is not None]
            assert dues == sorted(dues)
            assert len(dues) <= limit
        assert sum(page.looked for page in found) >= sum(key in one.keys for one in made)


def all_of(client: Client, wanted: Filter, limit: int) -> Iterator[SearchPage]:
    token: str | None = ""
    while token is not None:
        page = client.search(wanted, limit, token or None)
        yield page
        token = page.next_token


def test_a_page_by_key_looks_at_a_bounded_number_and_leaves_out_what_ends_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keyed(client, 60)
    with monkeypatch.context() as patch:
        patch.setattr(search_by_key, "FIRST_READ", 2)
        page = SearchByKey(client.reading(), Filter(key="k"), 100)
        client._run(page.begin())
        client._run(page.step())
        client.cancel_many([f"m-{number:03}" for number in range(4)])
        while page.goes_on(in_time=True):
            client._run(page.step())
        found = {one.id for one in client._run(page.end()).messages}
        assert found == {one.id for one in made} - {"m-002", "m-003"}
    monkeypatch.setattr(search_by_key, "MOST_READ", 4)
    monkeypatch.setattr(search_by_key, "MOST_LOOKED", 10)
    monkeypatch.setattr(search, "MOST_SECONDS", 3_600)
    (whole,) = all_of(client, Filter(key="k", topic="nothing"), 100)
    assert whole.messages == []
    assert len(next(all_of(client, Filter(key="k"), 100)).messages) < 20
    with monkeypatch.context() as patch:
        patch.setattr(search, "MOST_SECONDS", 0)
        pages = list(all_of(client, Filter(key="k", topic="nothing"), 100))
    assert [page.messages for page in pages] == [[]] * len(pages)
    assert len(pages) > 5
    monkeypatch.setattr(search_by_key, "MOST_BYTES", 20)
    assert max(len(page.messages) for page in all_of(client, Filter(key="k"), 100)) == 1
    with monkeypatch.context() as patch:
        patch.setattr(search, "SECONDS", 0)  # it comes forward all the same
        assert client.search(Filter(key="k")).looked == 8


def test_a_filter_or_limit_that_makes_no_sense_is_refused(client: Client) -> None:
    for field, wanted in (
        ("topic", Filter(topic="a[b]")), ("idPrefix", Filter(id_prefix="no id")), ("tags", Filter(tags="x" * 256)),
        ("tags", Filter(tags="\ud800")), ("property", Filter(property=("x" * 70_000, ""))),
        ("property", Filter(property=("", "x"))), ("state", Filter(states=("delivered",))),
        ("dueFrom", Filter(due_from=-1)), ("dueTo", Filter(due_to=10**13)), ("dueTo", Filter(due_from=9, due_to=9)),
    ):  # fmt: skip
        with pytest.raises(InvalidMessage) as refused:
            check_filter(wanted)
        assert refused.value.field == field
    for field, key, limit in (("limit", "k", 0), ("limit", "k", -1), ("key", "", 1), ("key", "a b", 1)):
        with pytest.raises(InvalidMessage, match=field):
            client.search(Filter(key=key), limit)
        if field == "limit":
            with pytest.raises(InvalidMessage, match=field):
                client.search(limit=limit)


def test_a_token_is_of_one_search_and_whole(client: Client, valkey: ServerUnderTest) -> None:
    world = World(valkey)
    for number in range(5):
        world.put(Given(f"m-{number}", 0, "", FUTURE + number, "t"))
    token = client.search(limit=1).next_token
    assert token is not None
    assert [one.id for one in client.search(Filter(due_to=FUTURE + 3), token=token).messages] == ["m-1", "m-2"]
    for wrong in [token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :] for n in range(len(token))]:
        with pytest.raises(InvalidMessage, match="pageToken"):
            client.search(token=wrong)
    with pytest.raises(InvalidMessage, match="is a token of another search"):
        client.search(Filter(topic="t"), token=token)
    keyed(client, 9)
    token = client.search(Filter(key="k"), 2).next_token
    for wanted in (Filter(), Filter(key="l")):
        with pytest.raises(InvalidMessage, match="pageToken"):
            client.search(wanted, token=token)
