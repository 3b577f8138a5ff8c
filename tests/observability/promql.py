"""What an expression of PromQL names: crude, but a name that it does not know is never passed over."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

FUNCTIONS: Final = frozenset({
    "abs", "absent", "and", "by", "count", "deriv", "group_right", "histogram_quantile", "increase", "max", "min", "on", "or",
    "rate", "sum", "time", "unless", "without",
})  # fmt: skip
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_MATCHERS: Final = re.compile(r"\{([^}]*)\}")
_LABELS: Final = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_NUMBER: Final = re.compile(r"(?<![\w:])\d+(?:\.\d+)?(?![\w:])")
_NAME: Final = re.compile(r"[A-Za-z_:][\w:]*")


class Named(NamedTuple):
    """The series and the labels of an expression."""

    series: set[str]
    labels: set[str]


def named_in(expression: str) -> Named:
    """All that it names and PromQL does not."""
    text = _RANGE.sub("", _STRING.sub('""', expression))
    labels: set[str] = set()
    for inner in _MATCHERS.findall(text):
        labels.update(re.split(r"[=!~]", part, maxsplit=1)[0].strip() for part in inner.split(",") if part.strip())
    for inner in _LABELS.findall(text):
        labels.update(part.strip() for part in inner.split(","))
    text = _NUMBER.sub("", _LABELS.sub("", _MATCHERS.sub("", text)))
    return Named({name for name in _NAME.findall(text) if name not in FUNCTIONS}, labels)
