"""The assignment of queues to nodes: rendezvous hashing with balanced load."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

_NOBODY: Mapping[int, str] = MappingProxyType({})


def preferred(queues: Iterable[int], nodes: Collection[str], owners: Mapping[int, str] = _NOBODY) -> dict[int, str]:
    """The node that should own each queue. Every process with the same arguments gets the same answer.

    The numbers of queues of two nodes differ by one at most. A queue stays with its owner as far as that allows. So when a
    node joins or leaves, only its own share of the queues moves. A free queue goes to the node with the highest rank for it
    that has room.

    The ranks are those of rendezvous hashing: Thaler and Ravishankar, "Using name-based mappings to increase hit rates",
    IEEE/ACM Transactions on Networking 6(1), 1998. The room is that of consistent hashing with bounded loads: Mirrokni,
    Thorup and Zadimoghaddam, SODA 2018. The function needs the owners, because the first of two nodes keeps a single queue.
    No function of queues and nodes alone can do that.
    """
    wanted = sorted(set(queues))
    names = sorted(set(nodes))
    if not names:
        return {}
    share, over = divmod(len(wanted), len(names))
    owned: dict[str, list[int]] = {name: [] for name in names}
    free: list[int] = []
    for queue in wanted:
        owned.get(owners.get(queue, ""), free).append(queue)

    # A node that has one queue more than the share already may keep it, so that no queue moves.
    ranked = sorted(names, key=lambda name: (len(owned[name]) <= share, _rank(name, "")))
    room = {name: share + (place < over) for place, name in enumerate(ranked)}

    chosen: dict[int, str] = {}
    for name, has in owned.items():
        has.sort(key=lambda queue: _rank(name, str(queue)))
        for queue in has[: room[name]]:
            chosen[queue] = name
        free += has[room[name] :]
        room[name] -= min(room[name], len(has))

    pairs = ((_rank(name, str(queue)), queue, name) for queue in free for name in names if room[name])
    for _, queue, name in sorted(pairs):
        if queue not in chosen and room[name]:
            chosen[queue] = name
            room[name] -= 1
    return dict(sorted(chosen.items()))


def _rank(name: str, of: str) -> bytes:
    """The rank of a node for a queue; the lowest comes first. It does not use hash(), which differs between processes."""
    return hashlib.blake2b(f"{of}\0{name}".encode(), digest_size=8).digest()
