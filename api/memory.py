"""Room in memory for a request, before anything is done for it.

Libraries in C may crash the process where no memory is left. Therefore a request that needs much is refused earlier.
"""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

__all__ = ["LARGE", "RESERVE", "need_room"]

#: From so many bytes on a body is worth the question. It costs a few microseconds.
LARGE: Final = 16_384
#: Bytes that bodies must leave to the requests in progress, while they arrive.
RESERVE: Final = 4_000_000
#: The most bytes that one byte of a body needs: for messages, records, commands and the answer.
_FACTOR: Final = 16


def need_room(body: int) -> None:
    """Raise MemoryError unless there is room for all that a body of so many bytes needs, and the reserve.

    The room is taken and given back at once: from the system, which is cheap, or else of the memory that was freed before.
    """
    room = _FACTOR * body + RESERVE
    try:
        mmap(-1, room, flags=MAP_PRIVATE | MAP_ANONYMOUS).close()
    except OSError:
        bytes(room)
