import ast
from pathlib import Path

import pytest

import delayq
from delayq.store.keys import ParkedSet

ROOT = Path(delayq.__file__).parent.parent
#: Other names in Redis that begin the same: `ParkedSet` spells the sets, the two others are a bucket and a field of the census.
SPELLED = {"delayq/store/keys.py", "delayq/domain/policies.py", "delayq/store/commands/census.py"}


@pytest.mark.parametrize(
    ("name", "route", "topic", "kinds"),
    [
        (ParkedSet.of_route("kafka"), "kafka", None, (True, False, False)),
        (ParkedSet.NO_ROUTE, None, None, (True, False, False)),
        (ParkedSet.of_topic("orders.k:x"), None, "orders.k:x", (False, True, False)),
        (ParkedSet.of_lane("orders", "a/b"), None, "orders", (False, False, True)),
        (ParkedSet.of_lane("t:", ""), None, "t:", (False, False, True)),
        ("k:kafka//a/b", "kafka", None, (False, False, False)),  # of a former version
    ],
)
def test_a_name_says_its_kind(name: str, route: str | None, topic: str | None, kinds: tuple[bool, bool, bool]) -> None:
    assert (ParkedSet.route(name), ParkedSet.topic(name)) == (route, topic)
    assert (ParkedSet.is_of_route(name), ParkedSet.is_of_topic(name), ParkedSet.is_of_lane(name)) == kinds


def test_lanes_of_topics_and_keys_share_no_name() -> None:
    lanes = [(topic, key) for topic in ("a", "a.b", "b") for key in ("", "/", "b/a", "a/b", "a")]
    assert len({ParkedSet.of_lane(*lane) for lane in lanes}) == len(lanes)


def test_only_one_class_spells_names_of_parked_sets() -> None:
    spelled = set()
    for folder in ("delayq", "workers", "api", "coordinator"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and node.value[:2] in ("t:", "h:", "k:")
                ):
                    spelled.add(str(path.relative_to(ROOT)))
    assert spelled == SPELLED, "use ParkedSet"
