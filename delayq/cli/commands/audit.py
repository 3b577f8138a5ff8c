"""The command audit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import UNSET

from delayq.answers.service import AuditEntryOut, audit_out
from delayq.base.local_time import in_sentence, shown
from delayq.base.terminal import Output, say
from delayq.base.times import format_instant
from delayq.cli.options import ApiUrl, AsJson, Limit, PageToken, RedisUrl, connect_any, moment, option

#: A time in the JSON of a change, such as the end of a pause.
_UNIX_MS: Final = re.compile(r"(?<=:)\d{13}(?=[,}])")


def audit(
    id: Annotated[str | None, option("--id", metavar="ID", help="Only changes of this message.")] = None,
    key: Annotated[
        str | None, option("--key", metavar="KEY", help="Only changes of messages with this business key.")
    ] = None,
    topic: Annotated[
        str | None, option("--topic", metavar="PATTERN", help="Only changes of these topics: a pattern with * and ?.")
    ] = None,
    actor: Annotated[
        str | None, option("--actor", metavar="NAME", help="Only changes by this actor: a name, or the id of a key.")
    ] = None,
    action: Annotated[
        str | None, option("--action", metavar="ACTION", help="Only this action, such as cancel or redrive.")
    ] = None,
    from_: Annotated[
        str | None,
        option("--from", metavar="TIME", help="Earliest: 15:30, a date, Unix ms, 2h ago."),
    ] = None,
    to: Annotated[str | None, option("--to", metavar="TIME", help="Latest, exclusive.")] = None,
    limit: Limit = 100,
    page_token: PageToken = None,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print the manual changes, newest first: who, what and why."""
    wanted: dict[str, Any] = {"id": id, "key": key, "topic": topic, "actor": actor, "action": action}
    with connect_any(redis_url, api) as client:
        now = client.redis_now()
        wanted |= {"from_": moment("--from", from_, now), "to": moment("--to", to, now)}
        page = client.audit(limit, page_token, **wanted)
    answer = audit_out(page, page.next_token)
    if json:
        Output().json(answer)
        return 0
    if answer.entries:
        Output().table(("time", "actor", "action", "what", "reason"), map(_row, answer.entries))
    else:
        say("no such change is in the audit.")
    if answer.next_page_token is not None:
        say(f"more may follow: --page-token {answer.next_page_token}")
    return 0


def _local(ms: int) -> str:
    return in_sentence(format_instant(ms))


def _row(entry: AuditEntryOut) -> Sequence[object]:
    what: str | None = _UNIX_MS.sub(lambda found: f'"{_local(int(found[0]))}"', entry.detail) or None
    if entry.messages is not UNSET:
        count = len(entry.messages) if entry.count is UNSET else entry.count
        what = entry.messages[0].id if count == 1 else f"{count} messages"
    if entry.run:
        what = f"run {entry.run}: {what}"
    return shown(entry.time), entry.actor, entry.action, what, entry.reason or None
