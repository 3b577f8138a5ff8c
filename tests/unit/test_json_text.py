"""JSON where memory runs out: an error, and no crash of the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from delayq.base.json_text import encode, explain
from tests.support.service import ROOT

WITHOUT_MEMORY = """
import resource
from delayq.base.json_text import encode
items = [["x" * 50] for _ in range(100_000)]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 3_000_000, -1))
try:
    encode(items)
except MemoryError:
    print("MemoryError")
"""


def test_a_value_is_the_same_text_as_of_msgspec() -> None:
    values: list[Any] = [{"a": [1, 2.5, None, "é\n"]}, "", [], 7, "x" * 100_000]
    for value in values:
        assert encode(value) == msgspec.json.encode(value)
    with pytest.raises(TypeError):
        encode(object())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (rb'"\ud83d"', "a lone surrogate at byte 1: half of a character such as an emoji"),
        (rb'["\ud83d\ude00\ude00", x', "a lone surrogate at byte 14: half of a character such as an emoji"),
        (b'{"a": x}', "invalid character at byte 6"),
        (b'{"a": ', "the text ends too early"),
        (b"", "the text ends too early"),
    ],
)
def test_text_that_is_no_json_is_explained(text: bytes, reason: str) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(text)
    assert explain(text, str(caught.value))[0] == reason


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space reliably")
def test_without_memory_it_raises_and_the_process_lives() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "MemoryError\n"
