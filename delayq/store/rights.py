"""This list has all rights that delayq needs in Redis: commands, keys and channels.

The check at the start, `/readyz`, `delayq doctor` and the documentation all read it. The text of each script gives its
commands (see `scripts`). The other commands are listed here, and tests compare the list with the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.base.errors import StoreError, StoreRefused
from delayq.store import scripts
from delayq.store.commands import Command, every, plain
from delayq.store.keys import KEYS, Keys


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of process may need these rights: its `scripts`, and `plain` commands outside scripts."""

    processes: str
    scripts: frozenset[str]
    plain: frozenset[str]

    @property
    def commands(self) -> tuple[str, ...]:
        """Return all commands, as the rights of a user name them: 'hget', 'xinfo|stream'."""
        return tuple(sorted(self.plain.union(*(scripts.called(name) for name in self.scripts))))


def _needs(processes: str, names: str, plain: str, base: Needs | None = None) -> Needs:
    scripts, commands = frozenset(names.split()), frozenset(plain.split())
    if base is not None:
        scripts, commands = scripts | base.scripts, commands | base.plain
    return Needs(processes=processes, scripts=scripts, plain=commands)


#: Every process needs these commands, to check a server and to call scripts.
_ALL: Final = Needs(
    processes="",
    scripts=frozenset({"lacking", "layout", "stats", "time"}),
    plain=frozenset({"eval", "evalsha", "hget", "hgetall", "hmget", "info", "time"}),
)
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
    " repair retry set_layouts set_policies spend take_slots takes trim",
    "exec hdel hscan hkeys hlen hset multi subscribe xinfo|groups xlen xtrim zcard zrange",
    _ALL,
)
CLI: Final = _needs(
    "command line",
    "bump_era close find_by_property repair set_layouts write_off",
    "exec hkeys hlen multi xread",
    CLIENT,
)
#: Only processes that receive messages need these rights, so no process checks them at its start.
CONSUMER: Final = _needs(
    "consumers",
    "destroy_group forget_group give_up group_lags held_calls receive record_group settle_received",
    "xread",
    CLIENT,
)
PROCESSES: Final = (CLIENT, WORKER, CLI, CONSUMER)

#: A worker works without this right: it polls once per second instead. So a process names the missing right at its start
#: and continues.
SPARED: Final = frozenset({"+subscribe"})

#: A process needs these rights only under the given conditions. A process that is missing one names it.
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


def _each_kind(keys: Keys) -> list[str]:
    """Return a key of each kind that processes use."""
    queue = keys.queue(0)
    shared = [keys.meta, keys.nodes, keys.policies, keys.rewritten, keys.trimmed, keys.audit, keys.groups]
    shared += [keys.rate("job"), keys.slots("topic"), keys.report("job")]
    return [*shared, queue.state, queue.queue, queue.pool, queue.audit, queue.held("topic"), queue.stream("topic")]


def lacking(keys: Keys, needs: Needs, *more: str) -> Command[tuple[str, ...] | None]:
    """Return the command that finds the rights of a process, and `more` commands, that the user does not have.

    Its answer is None if no server can answer. The command goes to every primary of a cluster. It needs only the right
    to run scripts, so it also works for a user that may not call ACL.
    """
    each = _each_kind(keys)

    def read(replies: Sequence[Any]) -> tuple[str, ...] | None:
        missing = _read(replies)
        if missing is None:
            return None
        kinds = [f"~{keys.pattern}"] if set(missing).issuperset(f"~{key}" for key in each) else []
        rest = (right for right in missing if not kinds or right[0] != "~")
        return (*kinds, *(f"&{keys.pattern}" if right[0] == "&" else right for right in rest))

    return every("EVAL", *_question(each, [keys.queue(0).wake], (*needs.commands, *more)), read=read)


def lacking_of(refused: Command[Any], reason: str) -> Command[StoreError]:
    """Return the command that finds the rights of a `refused` script that the user does not have.

    The `reason` of the refusal names no right. The answer is the error of the script, which has changed nothing.
    """

    def read(reply: Any) -> StoreError:
        missing = " ".join(_read([reply]) or ())
        return StoreRefused(
            f"the user of Redis is missing {missing}; docs/operations.md lists all rights" if missing else reason
        )

    commands = sorted(scripts.called(refused.script) - {"publish"})  # a wake is no reason to refuse a script
    return plain("EVAL", *_question(refused.keys, (), commands), read=read, key=refused.keys[0])


def _question(keys: Sequence[str], channels: Sequence[str], commands: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of EVAL."""
    return (scripts.load("lacking").text, "0", str(len(keys)), str(len(channels)), *keys, *channels, *commands)


def _read(replies: Sequence[Any]) -> tuple[str, ...] | None:
    known = [reply for reply in replies if reply is not None]
    if not known:
        return None
    return tuple(dict.fromkeys(right.decode() for reply in known for right in reply))


def acl_line(user: str = "delayq", password: str = "secret", streams: str = "orders.*", keys: Keys = KEYS) -> str:
    """Return the command that creates a user with exactly the rights of delayq.

    The rights do not include `config|get`, which also reads other settings.
    """
    words = {word for needs in PROCESSES for word in needs.commands} | CONDITIONAL.keys() - {"config|get"}
    words = {"xinfo" if word.startswith("xinfo|") else word for word in words}
    rights = " ".join(f"+{word}" for word in sorted(words))
    return f"ACL SETUSER {user} on >{password} resetkeys ~{keys.pattern} ~{streams} resetchannels &{keys.pattern} -@all {rights}"
