"""Faults of the product's source, and for each the tests that must find it.

`before` names the tests that found it before the suite was reduced: the rule behind each fault had tests that were deleted
or merged then.
"""

from __future__ import annotations

from typing import NamedTuple

from reliability.mutants import puller

__all__ = ["PLANTED", "Planted"]


class Planted(NamedTuple):
    """`there` stands once in `file` and is replaced by `instead`. Then one of `tests` must fail."""

    name: str
    file: str
    there: str
    instead: str
    tests: tuple[str, ...]
    before: tuple[str, ...]


_SOURCE = (
    Planted(
        "an owner that goes on from where it was after an unheard outcome",
        "workers/queue/pull_job.py",
        "        self._context.incarnation.advance()\n        self.in_flight.rewind(0)",
        "        self._context.incarnation.advance()",
        ("tests/workers/test_lost_replies.py::test_what_an_owner_sent_is_not_sent_again_by_the_store",),
        (),
    ),
    Planted(
        "a node that reads ZooKeeper only when a watch wakes it",
        "coordinator/zookeeper/coordinator.py",
        "REREAD * random.uniform(0.9, 1.1)",
        "1e9 * random.uniform(0.9, 1.1)",
        ("tests/coordinator/test_zookeeper.py::test_a_watch_that_was_missed_is_made_up_for_by_reading_again",),
        ("tests/faults/test_c_team.py::test_c16_with_every_watch_missed_queues_are_shared_by_reading_again",),
    ),
    Planted(
        "an overview that does not notice a change of owners",
        "coordinator/zookeeper/overview.py",
        "def _changed(self, event: Any) -> None:\n        self._wake()",
        "def _changed(self, event: Any) -> None:\n        return",
        ("tests/coordinator/test_overview.py::test_what_changes_ends_the_wait",),
        ("tests/coordinator/test_overview.py",),
    ),
    Planted(
        "a request of any length",
        "api/asgi.py",
        "if not value.isdigit() or len(value) > 18 or int(value) > limit:",
        "if not value.isdigit() or len(value) > 18:",
        ("tests/api/test_limits.py",),
        ("tests/faults/test_f_input.py::test_f12_what_is_too_large_is_refused_before_it_is_read",),
    ),
    Planted(
        "a record with any number of properties",
        "delayq/store/lua/include/sound.lua",
        " and texts <= MOST_TEXTS",
        "",
        (
            "tests/workers/test_damaged.py::test_a_record_with_more_properties_than_a_script_can_append_does_not_stop_its_neighbors",
        ),
        (),
    ),
    Planted(
        "pauses without a bound",
        "delayq/store/lua/meta/set_policies.lua",
        "all[kind] + added[kind] > tonumber(ARGV[6])",
        "false",
        ("tests/store/test_policies.py::test_there_are_so_many_in_all_and_on_the_topics_of_a_key",),
        ("tests/cli/test_topics.py::test_the_bound_of_pauses_and_policies_is_named_with_what_to_do",),
    ),
    Planted(
        "a console session that never expires",
        "api/auth/sessions.py",
        "if int(until) <= now:",
        "if int(until) <= 0:",
        ("tests/api/test_sessions.py",),
        ("tests/api/test_sessions.py",),
    ),
    Planted(
        "a private network that counts as public",
        "delayq/targets/webhook/egress.py",
        '"192.168.0.0/16", "100.64.0.0/10"',
        '"192.168.0.0/16"',
        ("tests/targets/test_egress.py",),
        ("tests/targets/test_egress.py",),
    ),
    Planted(
        "a policy of eviction that raises no alarm",
        "delayq/store/checks.py",
        'if server.policy not in (None, "noeviction"):',
        "if False:",
        ("tests/workers/test_alarms.py",),
        ("tests/faults/test_a_trust.py::test_a7_a_worker_that_runs_raises_the_alarm_and_goes_on",),
    ),
    Planted(
        "a client that never asks the sentinels again",
        "delayq/store/connect/sentinel.py",
        '"""Ask again before the next connection is made."""\n        self._server = None',
        '"""Ask again before the next connection is made."""',
        ("tests/store/test_sentinel.py::test_a_server_that_became_a_replica_is_left_for_the_new_primary",),
        ("tests/store/test_sentinel.py", "tests/faults/test_a_failover_by_hand.py"),
    ),
    Planted(
        "a client that stays at a server that became a replica",
        "delayq/store/connect/server_state.py",
        "if _WRONG_SERVER.search(text):",
        "if False:",
        ("tests/store/test_wrong_server.py::test_a_call_follows_the_name_at_once",),
        ("tests/store/test_wrong_server.py", "tests/faults/test_a_failover.py"),
    ),
    Planted(
        "a client that keeps the other connections to a server that became a replica",
        "delayq/store/connect/server_state.py",
        "return self._moves != self._server.moves",
        "return False",
        ("tests/store/test_wrong_server.py::test_connections_that_are_in_use_or_subscribed_are_left_too",),
        ("tests/store/test_wrong_server.py", "tests/faults/test_a_failover.py"),
    ),
    Planted(
        "a client that ignores the version of policies that a queue returned",
        "delayq/client/known_policies.py",
        "for version in (found.version, told):",
        "for version in (found.version,):",
        ("tests/store/test_policies_of_clients.py",),
        ("tests/store/test_policies_of_clients.py::test_a_policy_that_was_lost_while_a_queue_has_it_stops_nobody",),
    ),
    Planted(
        "an open circuit that lets no other message try",
        "workers/sending/circuit.py",
        "if self._probe_at is None or self._certain() or id in self._suspects:",
        "if self._probe_at is None or id:",
        ("tests/workers/test_circuits.py",),
        ("tests/workers/test_circuits.py",),
    ),
    Planted(
        "a new owner that takes unknown parked sets for empty",
        "workers/queue/parked_sets.py",
        'Parked((-1, b""), 1)',
        'Parked((2**53, b""), 1)',
        ("tests/workers/test_ordering.py",),
        ("tests/recovery/test_taking_over.py",),
    ),
    Planted(
        "the end of an id takes the way to the next message along",
        "delayq/store/lua/client/schedule.lua",
        "if outlived then",
        "if false then",
        ("tests/store/test_asked_ids.py",),
        ("tests/store/test_asked_ids.py",),
    ),
    Planted(
        "a key that is forgotten before the id of a cancelled message",
        "delayq/store/lua/client/cancel.lua",
        "    redis.call('HSET', ended_keys, id, keys)\n",
        "    redis.call('ZREM', index, keys .. '\\0' .. id)\n",
        ("tests/store/test_remembered_keys.py",),
        ("tests/store/test_remembered_keys.py",),
    ),
    Planted(
        "a message that is scheduled again though it was in flight",
        "delayq/store/lua/client/schedule.lua",
        "if how == CANCELLED and (again or digest == FREE) then",
        "if how and (again or digest == FREE) then",
        ("tests/store/test_again.py",),
        ("tests/store/test_again.py",),
    ),
    Planted(
        "a closed queue that keeps a cancel which was lifted",
        "delayq/store/lua/client/schedule.lua",
        "          if known[1] then\n            outlived",
        "          if false then\n            outlived",
        ("tests/store/test_again.py",),
        ("tests/store/test_again.py",),
    ),
    Planted(
        "an undo that frees the id of a message that was in flight",
        "delayq/store/lua/client/cancel.lua",
        "CANCELLED_IN_FLIGHT, certain and freed)",
        "CANCELLED, freed)",
        ("tests/store/test_again.py",),
        ("tests/store/test_again.py",),
    ),
    Planted(
        "a key that outlives the id",
        "delayq/store/lua/include/forget.lua",
        "      add_key_members(members, keys[i], id)\n",
        "",
        ("tests/store/test_remembered_keys.py",),
        ("tests/store/test_remembered_keys.py",),
    ),
    Planted(
        "a delivered message that is remembered by the id that was given alone",
        "delayq/store/lua/include/look.lua",
        "          elseif told ~= '' then",
        "          elseif false then",
        ("tests/store/test_remembered_keys.py",),
        ("tests/store/test_remembered_keys.py",),
    ),
    Planted(
        "a queue that keeps nothing of the id that a caller gave",
        "delayq/store/lua/client/schedule.lua",
        "if ordering > 0 and given then",
        "if false then",
        ("tests/store/test_asked_ids.py",),
        ("tests/store/test_asked_ids.py",),
    ),
    Planted(
        "a queue that never forgets the id that a caller gave",
        "delayq/store/lua/include/forget.lua",
        "string.find(id, '.%.%x%x%x%x$')",
        "false",
        ("tests/store/test_asked_ids.py",),
        ("tests/store/test_asked_ids.py",),
    ),
    Planted(
        "scripts that do not ask for their rights",
        "delayq/store/scripts.py",
        "commands = guarded(name)\n",
        "commands = ()\n",
        ("tests/store/test_refused_commands.py",),
        ("tests/store/test_refused_commands.py",),
    ),
    Planted(
        "a pull that appends before it asks for its rights",
        "delayq/store/lua/include/look.lua",
        "      if stream then\n        if not sure then\n",
        "      if stream then\n        if false then\n",
        ("tests/store/test_refused_commands.py",),
        ("tests/store/test_refused_commands.py",),
    ),
    Planted(
        "a pull that appends before it looks at what it writes later",
        "delayq/store/lua/include/look.lua",
        "elseif due and (mark > 1 or keys_end > options_end) then",
        "elseif false then",
        ("tests/store/test_held_sets.py",),
        ("tests/store/test_held_sets.py",),
    ),
    Planted(
        "a release of what the pulls have not come to",
        "delayq/store/lua/owner/release.lua",
        "(due > now or due > upto or due == upto and stands_behind(page[i], upto_ticket)) then",
        "due > now then",
        ("tests/store/test_held_sets.py", "tests/store/test_settling.py"),
        ("tests/store/test_held_sets.py",),
    ),
    Planted(
        "a release from the set of a route that passes what its topic holds",
        "delayq/store/lua/owner/release.lua",
        "other and (all_held or paused ~= nil or some_held)",
        "all_held",
        ("tests/store/test_settling.py",),
        (),
    ),
    Planted(
        "a release that does not report what it dropped",
        "delayq/store/lua/owner/release.lua",
        "other and first_orphan and due_of[first_orphan] or ''",
        "''",
        ("tests/store/test_settling.py",),
        (),
    ),
    Planted(
        "a pull that parks what its owner has in memory",
        "delayq/store/lua/include/look.lua",
        "if in_memory and in_memory[entries[i]] then",
        "if false then",
        ("tests/store/test_held_sets.py",),
        ("tests/store/test_held_sets.py",),
    ),
    Planted(
        "a wake that is refused and stops a change",
        "delayq/store/lua/include/wake.lua",
        "redis.pcall('PUBLISH'",
        "redis.call('PUBLISH'",
        ("tests/store/test_refused_commands.py",),
        ("tests/store/test_refused_commands.py",),
    ),
    Planted(
        "a refused login that leaves the outcome unknown",
        "delayq/store/connect/exchange.py",
        "if not is_login_refused(error):",
        "if True:",
        ("tests/store/test_refused_commands.py",),
        ("tests/store/test_refused_commands.py",),
    ),
    Planted(
        "a server that does not say whether it keeps anything, and is trusted",
        "delayq/store/checks.py",
        "elif server.aof is None and PERSISTENCE not in accept:",
        "elif False:",
        ("tests/store/test_checks.py",),
        ("tests/store/test_checks.py",),
    ),
    Planted(
        "scripts without a deadline",
        "delayq/store/connect/server_state.py",
        'return "" if self._ahead is None else',
        'return "" if True else',
        ("tests/store/test_deadlines.py",),
        ("tests/store/test_deadlines.py",),
    ),
    Planted(
        "an act of which each script writes an entry",
        "delayq/store/lua/include/audit.lua",
        "if last and last[2][2] == by then",
        "if false then",
        ("tests/store/test_audit.py",),
        ("tests/store/test_audit.py",),
    ),
    Planted(
        "an entry of the audit that names all messages",
        "delayq/store/lua/include/audit.lua",
        "#on + #line >= 4096",
        "false",
        ("tests/store/test_audit.py",),
        ("tests/store/test_audit.py",),
    ),
    Planted(
        "a cancel that writes no entry into the audit",
        "delayq/store/lua/client/cancel.lua",
        "  -- @include audit\n",
        "",
        ("tests/store/test_audit.py",),
        ("tests/store/test_audit.py",),
    ),
)

PLANTED = (
    *_SOURCE,
    *(Planted(name, puller.FILE, there, instead, puller.TESTS, puller.TESTS) for name, there, instead in puller.RULES),
)
