from __future__ import annotations

import subprocess
import sys

from tests.support.service import ROOT


def test_a_node_without_a_zookeeper_imports_no_kazoo() -> None:
    code = (
        "import sys, workers.node.node, coordinator; print([name for name in sys.modules if name.startswith('kazoo')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "[]\n"
