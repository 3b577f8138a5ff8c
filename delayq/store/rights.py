"""The rights that delayq needs in Redis: the one list of commands, keys and channels.

The check at the start, `/readyz`, `delayq doctor` and the documentation all read this list. The commands of scripts are
read from their text (see `scripts`), the others are listed here, and tests compare the list with the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.errors import StoreError, StoreRefused
from delayq.store import scripts
from delayq.store.commands import Command, every, plain
from delayq.store.keys import AUDIT, META, NODES, POLICIES, REWRITTEN, queue_keys, rate_key, report_key, slots_key

__all__ = [
    "CHANNELS",
    "CLI",
    "CLIENT",
    "CONDITIONAL",
    "CONSUMER",
    "KEYS",
    "PROCESSES",
    "SPARED",
    "WORKER",
    "Needs",
    "acl_line",
    "lacking",
    "lacking_of",
]

#: The patterns of all keys, and of all channels, of delayq. The streams of topics have keys of their own.
KEYS: Final = "delayq:*"
CHANNELS: Final = "delayq:*"


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The rights that one kind of process may need: its `scripts`, and the `plain` commands outside of them."""

    processes: str
    scripts: frozenset[str]
    plain: frozenset[str]

    @property
    def commands(self) -> tuple[str, ...]:
        """All commands, as the rights of a user name them: 'hget', 'xinfo|stream'."""
        return tuple(sorted(self.plain.union(*(scripts.called(name) for name in self.scripts))))


def _needs(processes: str, names: str, plain: str, base: Needs | None = None) -> Needs:
    scripts, commands = frozenset(names.split()), frozenset(plain.split())
    if base is not None:
        scripts, commands = scripts | base.scripts, commands | base.plain
    return Needs(processes=processes, scripts=scripts, plain=commands)


#: The commands of every process, to check a server and to call scripts.
_ALL: Final = _needs("", "layout lacking stats time", "eval evalsha info time hget hmget hgetall")
CLIENT: Final = _needs(
    "API, Python client, Spark, backfill, bridges",
    "advance apply_policies asked barrier cancel census_slice counts dead_letters deliver_now discard find_by_key get held_topics"
    " letters page redrive reschedule schedule set_policies spend",
    "hdel hset mget pexpire xrange xrevrange zcard zcount zlexcount zrange zrank zscore",
    _ALL,
)
WORKER: Final = _needs(
    "worker",
    "ack apply_policies bury census_slice claim forget_silent glance is_drained keep_census page park publish_node pull release"
    " repair retry set_layouts set_policies spend take_slots takes",
    "exec hdel hkeys hlen hset multi subscribe xinfo|groups xlen xtrim zcard zrange",
    _ALL,
)
CLI: Final = _needs(
    "command line",
    "bump_era close find_by_property repair set_layouts write_off",
    "exec hkeys hlen multi xread",
    CLIENT,
)
#: A process that never receives messages does not need these, so no process asks for them at its start.
CONSUMER: Final = _needs("consumers", "give_up receive settle_received", "xread", CLIENT)
PROCESSES: Final = (CLIENT, WORKER, CLI, CONSUMER)

#: Without this right a worker checks once per second and works: the right is named, but does not stop a process at its
#: start.
SPARED: Final = frozenset({"+subscribe"})

#: Rights that are needed only under a condition. A process without one names it.
CONDITIONAL: Final = {
    "ping": "workers: to find out whether a silent subscription still works",
    "select": "a database other than 0",
    "client|setname": "`client_name` in the URL of Redis",
    "client|setinfo": "Redis 7.2 or newer, or Valkey: the name of the client library",
    "role": "Sentinel",
    "cluster|slots": "Redis Cluster",
    "asking": "Redis Cluster",
    "wait": "`DELAYQ_MIN_REPLICAS`",
    "waitaof": "`DELAYQ_FSYNC=always` on Redis 8 or newer",
    "config|get": "`DELAYQ_FSYNC=always` on an older server, or on Valkey",
    "bgrewriteaof": "workers: to have the append-only file rewritten after a full disk",
}


def _keys() -> list[str]:
    """A key of each kind that all processes use."""
    queue = queue_keys(0)
    whole = [META, NODES, POLICIES, REWRITTEN, AUDIT, rate_key("job"), slots_key("topic"), report_key("job")]
    return [*whole, queue.state, queue.queue, queue.pool, queue.audit, queue.held("topic"), queue.stream("topic")]


def lacking(needs: Needs, *more: str) -> Command[tuple[str, ...] | None]:
    """Ask which rights of a process, and `more` commands, the user does not have; None if the server cannot answer.

    For a cluster, every primary is asked. It needs only the right to run scripts, so it also works where ACL is
    refused.
    """
    return every("EVAL", *_question((*needs.commands, *more)), read=_read)


def lacking_of(refused: Command[Any], reason: str) -> Command[StoreError]:
    """Ask which rights of a script the user does not have. The script was `refused`, and the `reason` names no right.

    The answer is the error of the script, which has done nothing.
    """

    def read(reply: Any) -> StoreError:
        missing = " ".join(_read([reply]) or ())
        return StoreRefused(
            f"the user of Redis is missing {missing}; docs/operations.md lists all rights" if missing else reason
        )

    return plain("EVAL", *_question(sorted(scripts.called(refused.script))), read=read, key=refused.keys[0])


def _question(commands: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of EVAL."""
    keys, channel = _keys(), queue_keys(0).wake
    return (scripts.load("lacking").text, "0", str(len(keys)), "1", *keys, channel, *commands)


def _read(replies: Sequence[Any]) -> tuple[str, ...] | None:
    known = [reply for reply in replies if reply is not None]
    if not known:
        return None
    rights = dict.fromkeys(right.decode() for reply in known for right in reply)
    if len([right for right in rights if right[0] == "~"]) == len(_keys()):
        rights = {f"~{KEYS}": None} | {right: None for right in rights if right[0] != "~"}
    return tuple(f"&{CHANNELS}" if right[0] == "&" else right for right in rights)


def acl_line(user: str = "delayq", password: str = "secret", streams: str = "orders.*") -> str:
    """Return the command that creates a user with exactly the rights of delayq; without `config|get`, which reads other
    settings too.
    """
    words = {word for needs in PROCESSES for word in needs.commands} | CONDITIONAL.keys() - {"config|get"}
    words = {"xinfo" if word.startswith("xinfo|") else word for word in words}
    rights = " ".join(f"+{word}" for word in sorted(words))
    return f"ACL SETUSER {user} on >{password} resetkeys ~{KEYS} ~{streams} resetchannels &{CHANNELS} -@all {rights}"
