"""A rolling upgrade over a change of the layout, or back from one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delayq import Client
from delayq.errors import LayoutMismatch
from delayq.store.commands import LAYOUT_VERSION
from delayq.store.keys import META
from delayq.testing import MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest

ANOTHER = f"{LAYOUT_VERSION}0"


def test_data_of_another_layout_are_refused_in_a_sentence_and_left_as_they_are(
    valkey: ServerUnderTest, target: MemoryTarget, clients: Callable[..., Client]
) -> None:
    clients(valkey.url).context()
    valkey.admin.hset(META, "version", ANOTHER)
    before = valkey.admin.hgetall(META)
    with RunningNode(settings_for(valkey.url, target), wait=False) as running:
        error = running.wait_for_the_end()
        running.error = None
    assert isinstance(error, LayoutMismatch)
    with pytest.raises(
        LayoutMismatch, match=f"this Redis has layout version {ANOTHER}, this delayq has {LAYOUT_VERSION}"
    ):
        clients(valkey.url).stats()
    assert valkey.admin.hgetall(META) == before
