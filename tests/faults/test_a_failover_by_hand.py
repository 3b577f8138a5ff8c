"""An operator moves the primary: as many replicas as there are must confirm a change, so that none is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.rig import QUEUES, WINDOW, Group, behind, fail_over
from tests.support.sentinels import SentinelsUnderTest
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def confirmed(session_sentinels: SentinelsUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with behind(session_sentinels, tmp_path_factory.mktemp("confirmed"), 2) as made:
        yield made


@pytest.fixture
def group(confirmed: Group, session_sentinels: SentinelsUnderTest) -> Group:
    """The group, well."""
    session_sentinels.heal()
    eventually(confirmed.service.ready, "the API is ready")
    return confirmed


def test_a11_a_fail_over_by_hand_loses_nothing_accepted(group: Group, session_sentinels: SentinelsUnderTest) -> None:
    with group.load("a11") as load:
        load.wait_for(200)
        fail_over(session_sentinels, session_sentinels.fail_over)
        load.wait_for(200)
    group.expect_all(load, twice=WINDOW * QUEUES)


def test_a12_a_new_primary_without_the_scripts_gets_them(group: Group, session_sentinels: SentinelsUnderTest) -> None:
    for one in session_sentinels.members:
        if not one.is_primary:
            one.admin.script_flush()
    with group.load("a12") as load:
        load.wait_for(100)
        fail_over(session_sentinels, session_sentinels.fail_over)
        load.wait_for(100)
    group.expect_all(load, twice=WINDOW * QUEUES)
