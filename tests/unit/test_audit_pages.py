"""Pages of the audit beside a plain list: every entry once, the newest first, whatever is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from delayq.client.known_routes import KnownRoutes
from delayq.client.looking import audit as under_test
from delayq.client.looking.audit import AuditEntry, WantedEntries, audit
from delayq.client.plan import Context
from delayq.domain.routes import Routes
from delayq.store.commands import Command
from delayq.store.keys import KEYS, Layout, Layouts

QUEUES = 3
#: Time, number, queue (-1: the whole), action, ids of messages.
Line = tuple[int, int, int, str, tuple[str, ...]]

lines = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 2),
        st.integers(-1, QUEUES - 1),
        st.sampled_from(["cancel", "redrive"]),
        st.lists(st.sampled_from(["a", "b", "c.00ff"]), max_size=2, unique=True).map(tuple),
    ),
    max_size=40,
    unique_by=lambda line: line[:3],
)


def reply_of(written: Iterable[Line], command: Command[Any]) -> list[Any]:
    """What XREVRANGE replies."""
    _, stream, newest, oldest, _, most = command.args

    def place(text: Any, default: tuple[int, int]) -> tuple[int, int]:
        at, _, number = str(text).lstrip("(").partition("-")
        return (int(at), int(number) if number else default[1]) if at.isdigit() else default

    high = place(newest, (10**9, 10**9))
    low = place(oldest, (-1, -1))
    queue = {KEYS.audit: -1} | {KEYS.queue(number).audit: number for number in range(QUEUES)}
    found: list[Any] = []
    for at, number, where, action, ids in sorted(written, reverse=True):
        if where != queue[str(stream)] or not low <= (at, number) <= high:
            continue
        if str(newest).startswith("(") and (at, number) == high:
            continue
        by = msgspec.json.encode({"actor": "shop", "action": action})
        on = "\n".join(f"{id}\0orders\0k" for id in ids)
        found.append((f"{at}-{number}".encode(), [b"by", by, b"on", on.encode()]))
    return found[: int(most)]


def pages(written: Iterable[Line], limit: int, wanted: WantedEntries) -> Iterator[list[AuditEntry]]:
    context = Context(layouts=Layouts((Layout(QUEUES),)), routes=KnownRoutes(Routes(None)))
    token = None
    for _ in range(1_000):
        plan = audit(context, limit, token, wanted)
        try:
            asked = next(plan)
            while True:
                asked = plan.send([command.read(reply_of(written, command)) for command in asked])
        except StopIteration as end:
            yield end.value.entries
            token = end.value.next_token
        if token is None:
            return
    raise AssertionError("it does not end")


@given(
    written=lines,
    limit=st.integers(1, 5),
    step=st.integers(1, 4),
    looks=st.integers(1, 50),
    wanted=st.fixed_dictionaries(
        {},
        optional={
            "id": st.sampled_from(["a", "c"]),
            "action": st.sampled_from(["cancel"]),
            "from_": st.integers(1, 4),
            "to": st.integers(1, 5),
        },
    ),
    restricted=st.booleans(),
)
def test_all_pages_together_are_the_list(
    written: list[Line], limit: int, step: int, looks: int, wanted: dict[str, Any], restricted: bool
) -> None:
    assume(wanted.get("from_", 0) < wanted.get("to", 9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(under_test, "STEP", step)
        patch.setattr(under_test, "MOST_LOOKS", looks)
        may = (lambda topic: topic == "orders") if restricted else None
        found = list(pages(written, limit, WantedEntries(**wanted, may=may)))
    assert all(len(page) <= limit for page in found)
    expected = []
    for at, number, queue, action, ids in sorted(written, key=lambda line: line[:3], reverse=True):
        if not wanted.get("from_", 0) <= at < wanted.get("to", 9) or wanted.get("action", action) != action:
            continue
        kept = [id for id in ids if wanted.get("id", id) in (id, id[:-5])]
        if kept or not (ids or restricted or "id" in wanted):
            expected.append((at, number, None if queue < 0 else queue, kept))
    told = [
        (one.change.at, one.change.number, one.queue, [m.id for m in one.change.messages]) for p in found for one in p
    ]
    assert told == expected
