"""Plans that pause and resume topics, and that put and delete policies.

A change is written in one place and then brought to every queue of every layout that is listed after the change. A
layout that is listed later has read it. Once all queues have the change, no queue hands out a message against it,
whatever a node knows. Each step may be repeated by any caller. If a caller stops halfway, the nodes bring the change to
their queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from delayq.base.errors import InvalidMessage, NotReady, PoliciesChanged, StoreError, StoreUnavailable, TooManyPolicies
from delayq.client.audit import Action, By, entry_of
from delayq.client.looking.topics import held_of, nodes_arriving
from delayq.client.plan import Context, Plan
from delayq.domain.nodes import read_nodes
from delayq.domain.patterns import check_pattern, covers, overlap
from delayq.domain.policies import Limit, Pause, Policies, Policy, check_policy_name, may_be_lost, number_of
from delayq.store import commands
from delayq.store.commands import ANY, Change, Command, PoliciesFull, PoliciesSet
from delayq.store.connect.exchange import all_good, as_unknown
from delayq.store.keys import Keys, Layouts
from delayq.targets.redis_stream.target import is_local

#: Attempts to bring the policies to all queues while others change them.
TRIES: Final = 10
#: The longest time (ms) that a call of `pause` may wait.
LONGEST_WAIT: Final = 60_000


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """A pause: no message of the topics is handed out any more, and at most `in_flight` messages may still arrive.

    `state` is 'paused' once no message may arrive, and 'pausing' before. `in_flight` is None until all nodes have reported.
    `since` is Unix ms, and `changed` is True if this call made or changed the pause.
    """

    match: str
    stored: str  # the version as queues and nodes have it
    since: int
    changed: bool
    in_flight: int | None = None

    @property
    def version(self) -> int:
        """The version of the policies."""
        return number_of(self.stored)

    @property
    def state(self) -> str:
        """'paused' if no message may arrive any longer, else 'pausing'."""
        return "paused" if self.in_flight == 0 else "pausing"


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a pause, and the highest possible number of held messages: a few may have been cancelled.

    `changed` is False if there was no pause with exactly this pattern and no limit left by one.
    """

    match: str
    version: int
    changed: bool
    held: int


class PolicyChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The current version of the policies, and whether this call made it."""

    name: str
    version: int
    changed: bool


def pause(
    context: Context,
    match: str,
    reason: str | UnsetType | None,
    until: int | UnsetType | None,
    by: By | None = None,
) -> Plan[Paused]:
    """Pause topics: when the plan ends, no pull hands out a message of these topics; see `paused`.

    If the pattern is already paused, a field that is UNSET keeps its value. Raises NotReady while a live node does not
    support pauses.
    """
    check_pattern(match)

    def changes(stand: Mapping[str, str], now: int, lines: Mapping[str, bytes]) -> list[Change]:
        there = Policies.read(stand).pauses.get(match)
        lasts = there is not None and (there.until is None or there.until > now)
        old = there if there is not None and lasts else Pause()
        one = Pause(
            match=match,
            reason=old.reason if reason is UNSET else "" if reason is None else reason,
            until=old.until if until is UNSET else until,
        )
        one.check(context.limits, now)
        _need_newer(lines, now, "pause topics")
        # A limit of an earlier resume ends now. It lasts while messages are held, which would be as long as the pause.
        return [Change(one.field, one.text, _stored(stand, one.field), lasts), Change(Limit(match=match).field, "")]

    asked: list[Command[Any]] = [commands.redis_now(), commands.nodes(context.keys)]
    made, version = yield from _revise(context, asked, changes, "pause", by)
    return Paused(match=match, stored=version, since=made.since[0] or 0, changed=made.changed)


def _need_newer(lines: Mapping[str, bytes], now: int, what: str) -> None:
    """Raise NotReady if a live node does not support policies."""
    if old := [line.node for line in read_nodes(lines, now).values() if not line.stale and line.policies is None]:
        raise NotReady(f"{', '.join(old)} cannot {what}, and nothing was done; start newer workers there first")


def check_wait(wait: object) -> int:
    """Return the time to wait (ms); raises InvalidMessage if it is out of range."""
    if type(wait) is not int or not 0 <= wait <= LONGEST_WAIT:
        raise InvalidMessage("wait", f"must be ms from 0 to {LONGEST_WAIT}; {wait!r:.100} is not")
    return wait


def paused(keys: Keys, one: Paused) -> Plan[Paused]:
    """Update the number of messages of a pause that may still arrive."""
    lines, now = all_good((yield [commands.nodes(keys), commands.redis_now()]))
    told = [here.in_flight for here in nodes_arriving(lines, now, one.match, one.stored)]
    return msgspec.structs.replace(one, in_flight=None if None in told else sum(count or 0 for count in told))


def resume(context: Context, match: str, rate: float | None, by: By | None = None) -> Plan[Resumed]:
    """End a pause: held messages are delivered as fast as possible, or at `rate` messages a second until none is held.

    Without a pause of exactly this pattern, the limit of an earlier resume is changed or ended.
    """
    check_pattern(match)
    limit = Limit(match=match, rate=rate or 0)
    if rate is not None:
        limit.check()
    held = yield from held_of(context, match)

    def changes(stand: Mapping[str, str]) -> list[Change]:
        wanted = {Pause(match=match).field: "", limit.field: "" if rate is None else limit.text}
        stored = {field: _stored(stand, field) for field in wanted}
        return [Change(field, text, stored[field]) for field, text in wanted.items()] if any(stored.values()) else []

    made, version = yield from _revise(context, [], changes, "resume", by)
    return Resumed(match=match, version=number_of(version), changed=made.changed, held=held.total())


def put_policy(
    context: Context,
    policy: Policy,
    redis_url: str,
    *,
    if_version: int | None = None,
    before: str = ANY,
    by: By | None = None,
) -> Plan[PolicyChanged]:
    """Create a policy or replace the one of its name; with `if_version`, only if the policies still have that version.

    `before` is the text that the replaced policy must have. Raises InvalidMessage, PoliciesChanged for another version or text,
    and NotReady while a live node cannot apply the policy.
    """
    policy.check(context.limits)
    now, lines = all_good((yield [commands.redis_now(), commands.nodes(context.keys)]))
    if policy.for_workers:
        _need_newer(lines, now, "act on policies")
    if policy.max_in_flight is not None:
        live = [line for line in read_nodes(lines, now).values() if not line.stale and line.tells_routes]
        tables = [[(one.name, one.match, one.local) for one in line.routes] for line in live]
        own = [(one.name, one.match, is_local(one, redis_url)) for one in context.routes.own.table]
        # In a rolling deployment the policy may be for new workers: one worker that can apply it is enough.
        streams = [_into_streams(table, policy.match) for table in tables or [own]]
        if all(name is not None for name in streams):
            raise InvalidMessage(
                "maxInFlight",
                f"route {streams[0]} appends such topics to streams of this Redis, where nothing is in flight; "
                "set maxBacklog on the route",
            )
    changes = [Change(policy.field, policy.text, before)]
    made, version = yield from _change(context, changes, "putPolicy", if_version, by)
    return PolicyChanged(name=policy.name, version=number_of(version), changed=made.changed)


def _into_streams(table: Iterable[tuple[str, str, bool]], match: str) -> str | None:
    """The route that appends topics of a pattern to streams of this Redis; a row is its name, its pattern and whether it does."""
    for name, pattern, local in table:
        if local and overlap(pattern, match):
            return name
        if covers(pattern, match):
            break
    return None


def delete_policy(
    context: Context, name: str, *, if_version: int | None = None, before: str = ANY, by: By | None = None
) -> Plan[PolicyChanged]:
    """Delete a policy; `changed` is False if there was none."""
    gone = Change(Policy(name=check_policy_name(name)).field, "", before)
    made, version = yield from _change(context, [gone], "deletePolicy", if_version, by)
    return PolicyChanged(name=name, version=number_of(version), changed=made.changed)


def _stored(stand: Mapping[str, str], field: str) -> str:
    """The text of a field; '' if it does not exist."""
    return stand.get(field, "").partition(" ")[2]


def _revise(
    context: Context,
    asked: Sequence[Command[Any]],
    changes: Callable[..., Sequence[Change]],
    action: Action,
    by: By | None,
) -> Plan[tuple[PoliciesSet, str]]:
    """Make the `changes` of the policies and the answers to `asked`; repeat them if another caller was faster."""
    for _ in range(TRIES):
        stand, *told = all_good((yield [commands.policies(context.keys), *asked]))
        made = yield from _set(context, changes(stand, *told), action, by)
        if made is not None:
            return made, (yield from _bring_change(context))
    raise StoreUnavailable("other callers keep changing the policies")


def _change(
    context: Context, changes: Sequence[Change], action: Action, if_version: int | None, by: By | None
) -> Plan[tuple[PoliciesSet, str]]:
    """Make changes; return their result, and the version that all queues have then."""
    made = yield from _set(context, changes, action, by, if_version)
    if made is None:
        raise PoliciesChanged("another caller has changed the policies, and nothing was done; read them again")
    return made, (yield from _bring_change(context))


def _set(
    context: Context, changes: Sequence[Change], action: Action, by: By | None, if_version: int | None = None
) -> Plan[PoliciesSet | None]:
    """Make changes; None if the policies are not those for which the changes were made. Raises TooManyPolicies."""
    entry = entry_of(by, action, context.retention)
    patterns = (by.patterns if by is not None else None) or ()
    latest = context.policies.latest
    asked = commands.set_policies(context.keys, changes, seen=if_version, beyond=latest, entry=entry, patterns=patterns)
    made: PoliciesSet | PoliciesFull | None = all_good((yield [asked]))[0]
    if isinstance(made, PoliciesFull):
        raise TooManyPolicies(made.kind, made.most, made.of_key)
    return made


def _bring_change(context: Context) -> Plan[str]:
    """Call `bring` after a change. Workers complete the change, so an error may not say that nothing was done."""
    try:
        version = yield from bring(context.keys, context.layouts)
    except StoreError as error:
        raise as_unknown(error) from error
    context.policies.latest = max(context.policies.latest, version)
    return version


def bring(keys: Keys, layouts: Layouts) -> Plan[str]:
    """Bring the current policies to all listed queues; return the version that all of them have then."""
    for _ in range(TRIES):
        listed, fields = all_good((yield [commands.layouts(keys), commands.policies(keys)]))
        layouts.take(listed)
        stand = Policies.read(fields)
        queues = map(keys.queue, layouts.queues)
        brought = all_good((yield [commands.apply_policies(one, stand.version, stand.paused) for one in queues]))
        beyond = [one.version for one in brought if may_be_lost(one.version, stand.version)]
        if not beyond:
            return stand.version
        # Another caller has changed them. Or Redis lost their last changes while a queue kept them: its owner applies the lost
        # ones until the policies get a later version.
        all_good((yield [commands.set_policies(keys, (), beyond=max(beyond))]))
    raise StoreUnavailable("other callers keep changing the policies")
