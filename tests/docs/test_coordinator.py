"""docs/nodes.md says how to look at who owns what."""

from __future__ import annotations

import re
import subprocess
import sys

from testbed.zookeeper import ZooKeeperServer
from tests.docs.blocks import ROOT, blocks_of
from tests.support.servers import ServerUnderTest

PAGE = ROOT / "docs" / "nodes.md"
NOTE = "run by tests/docs/test_coordinator.py"


def test_the_command_of_the_page_prints_who_owns_what(
    zookeeper: ZooKeeperServer, zookeeper_root: str, valkey: ServerUnderTest
) -> None:
    (block,) = (block for block in blocks_of(PAGE) if block.note == NOTE)
    settings = {"ZOOKEEPER": zookeeper.hosts, "ZOOKEEPER_ROOT": zookeeper_root, "REDIS_URL": valkey.url}
    command = block.text.strip().split()
    assert command[0] == "python"
    ran = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=ROOT,
        env={f"DELAYQ_{name}": value for name, value in settings.items()},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.fullmatch(r"\S+Z\t0 nodes, 0 of 0 queues owned\n", ran.stdout)
