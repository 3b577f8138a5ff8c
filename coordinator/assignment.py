"""Which node should own which queue: rendezvous hashing with balanced load."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

__all__ = ["preferred"]

_NOBODY: Mapping[int, str] = MappingProxyType({})


def preferred(queues: Iterable[int], nodes: Collection[str], owners: Mapping[int, str] = _NOBODY) -> dict[int, str]:
    """The node that should own each queue. Every process with the same arguments gets the same answer.

    Every node gets as many queues as any other, or one more. A queue stays with its owner as far as that allows, so a
    join or a leave moves no more queues than the balance forces: a newcomer's share, or what the one that left had.
    What is free goes to the node that ranks highest for it among those that have room.

    The ranks are those of rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit
    rates", IEEE/ACM Transactions on Networking 6(1), 1998), the room is that of consistent hashing with bounded loads
    (Mirrokni, Thorup and Zadimoghaddam, SODA 2018). The owners are asked for because no function of queues and nodes
    alone can be both: of two nodes with one queue, the one that joins second must not get it, whichever it is.
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

    # One more than the share is allowed for nodes that have it already, so that nothing moves.
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
    """The rank of a node for a queue, the lowest first. Not hash(), which differs between processes."""
    return hashlib.blake2b(f"{of}\0{name}".encode(), digest_size=8).digest()
