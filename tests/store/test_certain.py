"""What a pause has to say of a cancel: what it has held since before it was due was surely never handed out."""

from __future__ import annotations

from fnmatch import translate
from importlib.resources import files
from re import fullmatch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delayq.store import commands
from tests.support.amounts import amount
from tests.support.queues import EPOCH, Queue, State, Taken, row, taken
from tests.support.servers import ServerUnderTest

NOW, DUE = 20_000, 30_000
LUA = files("delayq.store") / "lua" / "include"
MATCHES = f"""{(LUA / "glob.lua").read_text()}
local answer, one = {{}}, glob(ARGV[1])
for i = 2, #ARGV do
  answer[i - 1] = matches(one, ARGV[i]) and 1 or 0
end
return answer"""


def pause(q: Queue, number: int, *matches: str, now: int = NOW) -> str:
    version = f"{number:010}.0000000001"
    q.run(commands.apply_policies(q.keys, version, matches, now=now))
    return version


def pulled(q: Queue, version: str, now: int = DUE) -> dict[str, Taken]:
    return {
        one.id: one for one in taken(q.run(commands.pull(q.keys, EPOCH, offset=0, room=9, now=now, version=version)))
    }


@pytest.mark.parametrize("aside", ["h:orders", "k:route/key"])
def test_what_was_held_since_before_it_was_due_is_cancelled_for_certain_wherever_it_stands(
    q: Queue, aside: str
) -> None:
    """I7: A cancel answers `cancelled` for every message that was due after the pause, though its time has passed.

    None of these arrives, also after the resume. A message that was not cancelled arrives.
    """
    q.given(row("queued", at=DUE), row("aside", at=DUE))
    version = pause(q, 1, "sms.*", "ord*")
    if aside != "h:orders":
        q.park(aside, Taken(q.admin.zrange(q.keys.queue, 0, 0)[0], DUE, 0, q.record("aside")))
    pulled(q, version)
    assert q.cancel("queued", "aside", now=DUE + 1) == ["cancelled", "cancelled"]
    assert q.state() == State(
        orphans={"queued", "aside"}, final=dict.fromkeys(("queued", "aside"), ("cancelled", DUE + 1))
    )


def test_what_may_have_been_handed_out_before_it_was_held_is_not_cancelled_for_certain(q: Queue) -> None:
    """I7: Of messages due before the pause a cancel is certain only where it is true."""
    q.given(row("due", at=NOW), row("other", at=DUE, topic="sms"), row("tried", at=NOW - 1))
    q.retry((q.take_one(now=NOW - 1), DUE))
    pulled(q, pause(q, 1, "orders", "orders.*"))
    assert q.cancel("due", "other", "tried", now=DUE) == ["inFlight"] * 3
    for cut in (25, 20, 8):  # nor is a record that cannot be read
        q.given(row(f"cut-{cut}", at=DUE), now=NOW)
        q.admin.hset(q.keys.pool, f"cut-{cut}", q.admin.hget(q.keys.pool, f"cut-{cut}")[:cut])
        assert q.cancel(f"cut-{cut}", now=DUE) == ["inFlight"]


def test_of_several_pauses_the_earliest_mark_counts_while_its_pause_lasts(q: Queue) -> None:
    pause(q, 1, "*")
    q.given(row("a", at=NOW + 10), row("b", at=NOW + 10), row("c", at=NOW + 30))
    pause(q, 2, "*", "orders", now=NOW + 20)
    assert q.cancel("a", now=DUE) == ["cancelled"]
    pause(q, 3, "o*s", "orders", now=NOW + 30)
    assert q.cancel("b", "c", now=DUE) == ["inFlight", "cancelled"]
    pause(q, 4, now=DUE)
    q.given(row("d", at=DUE + 1))
    assert q.cancel("d", now=DUE + 1) == ["inFlight"]


def test_what_is_surely_held_gets_another_due_and_what_is_set_aside_otherwise_does_not(q: Queue) -> None:
    q.given(row("before", at=NOW), row("held", at=DUE))
    messages = pulled(q, pause(q, 1, "orders"))
    q.park("h:orders", *messages.values())
    assert q.reschedule("before", "a90000", now=DUE) == ("parked", None)
    assert q.reschedule("held", "a90000", now=DUE) == ("scheduled", 90_000)
    assert q.state().queue == {"held": 90_000}
    generation = q.record("held").generation
    assert q.reschedule("held", "a90000", now=DUE) == ("scheduled", 90_000)
    assert q.record("held").generation == generation


@settings(max_examples=amount(100, 1_000))
@given(st.text("ab.-*?", min_size=1, max_size=8), st.lists(st.text("ab.-:_", min_size=1, max_size=8), min_size=1))
@example("*a" * 127 + "*b", ["a" * 255])  # what takes for ever where every way is tried
def test_a_pattern_covers_what_it_covers_in_a_route(
    session_valkey: ServerUnderTest, pattern: str, topics: list[str]
) -> None:
    answer = session_valkey.admin.eval(MATCHES, 0, pattern, *topics)
    assert [one == 1 for one in answer] == [fullmatch(translate(pattern), topic) is not None for topic in topics]
