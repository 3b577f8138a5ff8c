"""Reserve memory for a request before anything is done for it.

Libraries in C may crash the process when no memory is left. Therefore a request that needs much memory is refused
earlier.
"""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

#: Bodies of at least this many bytes are checked. The check takes a few microseconds.
LARGE: Final = 16_384
#: Bytes that bodies must leave free for the requests in progress.
RESERVE: Final = 4_000_000
#: The maximum number of bytes that one byte of a body needs: for messages, records, commands and the answer.
_FACTOR: Final = 16


def need_room(body: int) -> None:
    """Raise MemoryError unless there is memory for the processing of a body of this size, and the reserve.

    The memory is allocated and freed at once: from the system, which is cheap, or from memory that was freed before.
    """
    room = _FACTOR * body + RESERVE
    try:
        mmap(-1, room, flags=MAP_PRIVATE | MAP_ANONYMOUS).close()
    except OSError:
        bytes(room)
