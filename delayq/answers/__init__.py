"""The JSON answers of the HTTP API and of `--json`: each is written from a value, and read by `domain` as that value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)


class Readable(Protocol[T_co]):
    """An answer that a client reads. Fields that this version does not know are ignored."""

    def domain(self) -> T_co:
        """Return the value that the answer shows. Raises ValueError for an impossible one."""
        ...


def read(kind: type[Readable[T_co]]) -> Callable[[bytes], T_co]:
    """Return the function that reads the JSON of such an answer."""
    return lambda body: msgspec.json.decode(body, type=kind).domain()
