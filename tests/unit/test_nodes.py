"""What a node's line is read as, whoever wrote it, and who owns a queue by the lines of all."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from delayq.base.times import format_instant
from delayq.domain.nodes import LINE_AGE, Complaint, NodeLine, Owned, era_of, owners_of, read_nodes
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH

NOW = 2_000_000_000_000
WHOLE: dict[str, Any] = {
    "node": "a", "address": "10.0.0.1:8081", "version": "0.1.0", "since": NOW - 60_000, "seen": NOW - 1_000,
    "coordinator": "zookeeper", "queues": {"11": {"epoch": NEW_EPOCH, "since": NOW - 9_000}, "3": {"epoch": EPOCH}},
    "handed_over": NOW - 9_500, "complaints": ["late", "odd"], "codes": ["DelayqClockSkew", ""],
}  # fmt: skip
OLD: dict[str, Any] = {"node": "a", "since": NOW - 60_000, "seen": NOW - 1_000, "queues": {"3": EPOCH, "11": EPOCH}}
OLD["complaints"] = ["late"]


def read(*lines: dict[str, Any]) -> dict[str, NodeLine]:
    return read_nodes({line["node"]: json.dumps(line).encode() for line in lines}, NOW)


def line(node: str, epoch: str, *queues: int, age: int = 0) -> dict[str, Any]:
    return OLD | {"node": node, "seen": NOW - age, "queues": {str(queue): epoch for queue in queues}}


def test_a_line_says_all_of_a_node_and_that_of_an_older_worker_less() -> None:
    either: dict[str, Any] = {"node": "a", "since": NOW - 60_000, "seen": NOW - 1_000, "stale": False}
    assert read(WHOLE)["a"] == NodeLine(
        address="10.0.0.1:8081",
        version="0.1.0",
        coordinator="zookeeper",
        queues={3: Owned(EPOCH), 11: Owned(NEW_EPOCH, NOW - 9_000)},
        handed_over=NOW - 9_500,
        complaints=(Complaint("late", "DelayqClockSkew"), Complaint("odd")),
        **either,
    )
    assert read(OLD)["a"] == NodeLine(
        queues={3: Owned(EPOCH), 11: Owned(EPOCH)}, complaints=(Complaint("late"),), **either
    )
    assert read(WHOLE | {"mood": "good"}) == read(WHOLE)  # a later worker may say more
    nodes = read(WHOLE | {"node": "b"}, WHOLE | {"node": "c"}, WHOLE)
    assert (list(nodes), list(nodes["a"].queues)) == (["a", "b", "c"], [3, 11])


def test_a_line_is_stale_after_15_seconds() -> None:
    stale = {-60_000: False, 0: False, LINE_AGE: False, LINE_AGE + 1: True}
    assert {age: read(WHOLE | {"seen": NOW - age})["a"].stale for age in stale} == stale
    assert LINE_AGE == 15_000


GARBLED = [b"", b"{", b"\xff\xfe", b"null", b"[]", b"{}", b'{"queues": {}}', b'{"seen": "now"}', b'{"seen": -1}']
GARBLED += [b'{"seen": 10000000000000}', b'{"seen": 1, "queues": {"three": "x"}}', b'{"seen": 1, "queues": {"3": 7}}']
GARBLED += [b'{"seen": 1, "queues": {"3": {}}}', b'{"seen": 1, "since": 1e400}', b'{"seen": 1, "x": ' + b"[" * 100_000]


def test_a_line_that_cannot_be_read_is_left_out_and_the_others_are_read() -> None:
    for raw in GARBLED:
        assert list(read_nodes({"a": json.dumps(WHOLE).encode(), "b": raw}, NOW)) == ["a"], raw[:40]


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.recursive(st.none() | st.integers() | st.text(), st.lists)))
def test_whatever_a_line_says_its_times_can_be_shown(fields: dict[str, Any]) -> None:
    for node in read_nodes({"a": json.dumps(WHOLE | fields).encode()}, NOW).values():
        for moment in (node.seen, node.since, node.handed_over):
            assert moment is None or format_instant(moment)


# -- owners --------------------------------------------------------------------------------------------------------------


def test_the_owner_is_the_live_node_with_the_highest_epoch() -> None:
    nodes = read(line("a", OLD_EPOCH, 0, 1, 2), line("b", EPOCH, 1, 2), line("c", NEW_EPOCH, 2, age=LINE_AGE + 1))
    assert owners_of(nodes.values(), dict.fromkeys(range(4))) == {0: "a", 1: "b", 2: "b"}
    # A node that was fenced off owns nothing, and queues that there are not have no owner.
    alone = read(line("a", EPOCH, -1, 0, 1, 2, 16)).values()
    assert owners_of(alone, {0: OLD_EPOCH, 1: EPOCH, 2: NEW_EPOCH, 3: None}) == {0: "a", 1: "a"}


def test_an_epoch_says_its_era() -> None:
    eras = {EPOCH: 0, f"{7:010d}.{1:020d}": 7, f"{10**10 - 1:010d}.{1:020d}": 10**10 - 1, None: 0, "": 0, "x": 0}
    assert {epoch: era_of(epoch) for epoch in eras} == eras
