"""Compares what a program prints with what a page shows. How blocks are marked: devtools/pages.py."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from devtools.pages import PAGES, ROOT, Block, blocks_of

__all__ = ["PAGES", "ROOT", "Block", "blocks_of", "matches"]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_UNIX_MS: Final = 10**12  # numbers from here on are times in Unix ms


def matches(shown: str, printed: str) -> bool:
    """Whether a program printed what the page shows.

    JSON is compared as JSON: any time equals any other time, in RFC 3339 or Unix ms. '…' stands for any text.
    """
    try:
        wanted, got = json.loads(shown), json.loads(printed)
    except ValueError:
        return _text_matches(shown.strip(), printed.strip())
    return _value_matches(wanted, got)


def _value_matches(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(got, dict):
        return wanted.keys() == got.keys() and all(_value_matches(wanted[name], got[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(got, list):
        return len(wanted) == len(got) and all(map(_value_matches, wanted, got))
    if isinstance(wanted, str) and isinstance(got, str):
        both_times = bool(_TIME.fullmatch(wanted) and _TIME.fullmatch(got))
        return both_times or _text_matches(wanted, got)
    if type(wanted) is int and type(got) is int and min(wanted, got) >= _UNIX_MS:
        return True
    return type(wanted) is type(got) and bool(wanted == got)


def _text_matches(wanted: str, got: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), got, re.DOTALL) is not None
