"""What logs neither waits nor fails, whatever becomes of the lines."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from delayq.telemetry.nonblocking_log import NonblockingHandler
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

FULL = Path("/dev/full")


def say(handler: logging.Handler, text: str) -> None:
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, text, None, None))


def test_lines_arrive_in_order(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        handler = NonblockingHandler(file.fileno())
        for number in range(1_000):
            say(handler, str(number))
        handler.drain(PATIENCE)
    assert (tmp_path / "log").read_text().split() == [str(number) for number in range(1_000)]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full, which stands for a full disk: try it on Linux")
def test_a_full_disk_costs_the_lines_and_nothing_else() -> None:
    with FULL.open("wb", buffering=0) as file:
        handler = NonblockingHandler(file.fileno())
        for _ in range(10):
            say(handler, "x")
        handler.drain(PATIENCE)
    assert handler.dropped == 10


def test_a_pipe_that_nobody_reads_holds_up_nobody() -> None:
    near, far = os.pipe()
    with os.fdopen(near, "rb") as reader, os.fdopen(far, "wb", buffering=0) as file:
        handler = NonblockingHandler(file.fileno(), most=10)
        for _ in range(1_000):
            say(handler, "x" * 1_000)  # far more than a pipe takes
        handler.drain(0.01)
        assert handler.dropped > 0
        eventually(lambda: reader.read1(65_536) and handler._waiting.empty(), "what is read makes room")
        handler.drain(PATIENCE)
