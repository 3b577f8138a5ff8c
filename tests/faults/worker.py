"""`python -m workers`, of which no start and no lost session counts towards leaving it out: tests end both again and again."""

from __future__ import annotations

import runpy

from coordinator.zookeeper import crash_loop, membership

if __name__ == "__main__":
    for module in (crash_loop, membership):
        setattr(module, "SPAN", -1)  # noqa: B010 - an assignment would have to keep the type
    runpy.run_module("workers", run_name="__main__", alter_sys=True)
