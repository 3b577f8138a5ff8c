"""Claims, epochs, the layout, the era, the nodes' lines, and the repair of what does not fit together."""

from __future__ import annotations

from delayq.store import commands
from delayq.store.commands import Meta
from delayq.store.keys import KEYS, Layout
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH, Queue, State, ids, row

# -- claim ---------------------------------------------------------------------------------------------------------------


def test_the_highest_epoch_wins_and_an_older_one_is_told_which_and_the_parked_sets(q: Queue) -> None:
    assert q.run(commands.stored_epoch(q.keys)) is None
    for epoch, stored in (
        (EPOCH, EPOCH), (NEW_EPOCH, NEW_EPOCH), (EPOCH, NEW_EPOCH), (NEW_EPOCH, NEW_EPOCH), (OLD_EPOCH, NEW_EPOCH),
        (f"{0:010}.{2**63:020}", f"{0:010}.{2**63:020}"),  # beyond what a number of Lua can hold
        (f"{0:010}.{2**63 + 1:020}", f"{0:010}.{2**63 + 1:020}"),
        (f"{0:010}.{2**63:020}", f"{0:010}.{2**63 + 1:020}"),
        (f"{0:010}.{2**64 - 1:020}", f"{0:010}.{2**64 - 1:020}"),
        (f"{1:010}.{1:020}", f"{1:010}.{1:020}"),  # a later era is above every number
    ):  # fmt: skip
        claimed = q.run(commands.claim(q.keys, epoch))
        assert (claimed.ok, claimed.epoch, claimed.parked) == (epoch == stored, stored, ())
        assert q.run(commands.stored_epoch(q.keys)) == q.field("epoch") == stored
    q.epoch = stored
    q.given(row("a", at=20_000), row("b", at=20_000))
    for name, one in zip(("t:kafka", "k:customer"), q.take(now=20_000), strict=True):
        q.park(name, one)
    for epoch in (stored, OLD_EPOCH):
        assert set(q.run(commands.claim(q.keys, epoch)).parked) == {"t:kafka", "k:customer"}


# -- layout and nodes ----------------------------------------------------------------------------------------------------


def test_the_first_process_writes_the_layout_and_each_new_era_is_later_than_all_that_were_seen(q: Queue) -> None:
    assert q.run(commands.era(KEYS)) == 0
    for queues in (16, 32):
        assert q.run(commands.layout(KEYS, queues)) == Meta((Layout(16),), commands.LAYOUT_VERSION, 0)
    made = [q.run(commands.bump_era(KEYS, seen)) for seen in (0, 0, 7, 7, 9_999_999_998)]
    assert made == [(0, 1), (1, 2), (2, 8), (8, 9), (9, 9_999_999_999)]
    assert q.run(commands.layout(KEYS, 16)).era == q.run(commands.era(KEYS)) == 9_999_999_999


def test_redis_tells_its_time(q: Queue) -> None:
    first = q.run(commands.redis_now())
    seconds, micro = q.admin.time()
    assert first <= seconds * 1000 + micro // 1000 <= q.run(commands.redis_now())


def test_a_nodes_line_is_written_read_and_removed(q: Queue) -> None:
    assert q.run(commands.nodes(KEYS)) == {}
    lines = (("node-1", b"{}"), ("node-2", b"\xff\0"), ("node-1", b"{1}"))
    assert [q.run(commands.publish_node(KEYS, name, line)) for name, line in lines] == [b"", b"", b"{}"]
    assert q.run(commands.nodes(KEYS)) == {"node-1": b"{1}", "node-2": b"\xff\0"}
    q.run(commands.forget_node(KEYS, "node-1"))
    q.run(commands.forget_node(KEYS, "node-1"))
    assert q.run(commands.nodes(KEYS)) == {"node-2": b"\xff\0"}


# -- repair --------------------------------------------------------------------------------------------------------------


def test_repair_leaves_alone_what_is_whole_and_buries_what_cannot_be_read(q: Queue) -> None:
    q.given(*(row(id, at=20_000) for id in ("queued", "dead", "parked", "parked by key")))
    messages = {one.id: one for one in q.take(now=20_000)}
    q.bury(messages["dead"])
    q.park("t:kafka", messages["parked"])
    q.park("k:key", messages["parked by key"])
    before = q.state(), q.fields()
    assert q.repair() == (0, 0)
    assert (q.state(), q.fields()) == before
    q.admin.hset(q.keys.pool, "short", "abc")
    q.admin.hset(q.keys.pool, "no due", "x" * 60)
    assert [q.repair() for _ in range(2)] == [(0, 2), (0, 0)]
    before[0].dead |= {"no due": 20_000, "short": 20_000}
    before[0].reasons |= dict.fromkeys(("no due", "short"), "20000 0 corrupt record")
    assert q.state() == before[0]
    assert q.discard("short", "no due") == [True, True]


def test_a_record_without_a_ticket_gets_it_back_and_counts_as_exposed(q: Queue) -> None:
    """F10: The workers' regular look or `delayq doctor --repair` gives such a record its ticket."""
    q.given(row("lost", at=20_000), row("retried", at=20_000))
    messages = {one.id: one for one in q.take(now=20_000)}
    q.retry((messages["retried"], 30_000))
    q.admin.delete(q.keys.queue)
    assert q.state().strays == {"lost", "retried"}
    assert q.repair() == (2, 0)
    assert q.state() == State(queue={"lost": 20_000, "retried": 20_000}, attempts={"lost": 0, "retried": 1})
    assert q.field("repaired") == "2"
    assert ids(q.pull(now=20_000)) == ["lost", "retried"]


def test_a_record_cut_short_comes_back_as_corrupt_or_leads_to_a_dead_letter_in_the_end(q: Queue) -> None:
    q.given(row("a", at=20_000))
    raw: bytes = q.admin.hget(q.keys.pool, "a")
    q.admin.hset(q.keys.pool, "a", raw[:-1])
    q.admin.delete(q.keys.queue)
    assert q.repair() == (1, 0)
    assert q.pull(now=20_000).records == [raw[:-1]]
    q.admin.hset(q.keys.pool, "a", "abc")  # its ticket does not find it any more
    assert ids(q.pull(now=20_000)) == []
    assert q.state().strays == {"a"}
    assert q.repair() == (0, 1)
    assert list(q.state().dead) == ["a"]


def test_repair_goes_through_a_large_pool_page_by_page(q: Queue) -> None:
    for start in range(0, 2_000, 500):
        q.given(*(row(f"m{number}", at=20_000 + number) for number in range(start, start + 500)))
    q.admin.zremrangebyrank(q.keys.queue, 0, 999)
    assert q.repair(look=100) == (1_000, 0)
    assert len(q.state().queue) == 2_000


def test_the_lines_of_nodes_that_have_been_silent_for_long_are_removed(q: Queue) -> None:
    now, silent = 10_000_000, 3_600_000
    ages = {"fresh": 0, "just": silent, "gone": silent + 1, "ahead": -silent, "far-ahead": -silent - 1}
    for name, age in ages.items():
        q.run(commands.publish_node(KEYS, name, b'{"node":"%s","seen":%d,"queues":{}}' % (name.encode(), now - age)))
    q.run(commands.publish_node(KEYS, "odd", b"of another version"))
    for _ in range(2):  # again is harmless
        assert q.run(commands.forget_silent(KEYS, "0", silent, now=now)) == "0"
        assert q.run(commands.nodes(KEYS)).keys() == {"fresh", "just", "ahead", "odd"}


def test_silent_nodes_are_looked_for_a_page_at_a_time(q: Queue) -> None:
    for number in range(1_000):
        q.run(commands.publish_node(KEYS, f"node-{number}", b'{"seen":1,"address":"%s"}' % (b"a" * 100)))
    cursor, left = "0", 1_000
    while left:
        cursor = q.run(commands.forget_silent(KEYS, cursor, 1_000, page=20, now=2_000))
        before, left = left, len(q.run(commands.nodes(KEYS)))
        assert before - left <= 100, "each call is bounded"
        assert left == 0 or cursor != "0"
