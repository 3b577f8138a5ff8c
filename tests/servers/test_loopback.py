"""Classes of RocketMQ with a constant replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import jars, loopback
from testbed.errors import ServerError
from testbed.rocketmq import NAME


def test_a_constant_is_replaced_by_one_of_another_length() -> None:
    assert loopback.replaced(b"a\x01\x00\x030.0b", "0.0", "127.0") == b"a\x01\x00\x05127.0b"


@pytest.mark.parametrize("code", [b"", b"\x01\x00\x030.0\x01\x00\x030.0", b"\x01\x00\x040.0x"])
def test_a_class_that_is_another_is_refused(code: bytes) -> None:
    with pytest.raises(ServerError, match="it is of another version"):
        loopback.replaced(code, "0.0", "127.0")


def test_every_class_is_in_the_pinned_jars(tmp_path: Path) -> None:
    if jars.missing(NAME):
        pytest.skip("RocketMQ's classes are not here: ./dev brokers fetch rocketmq")
    loopback.write(tmp_path, jars.cache(NAME))
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.class")} == {
        "delayq/Loopback.class",
        *(f"{name}.class" for name, _, _ in loopback.CLASSES.values()),
    }
