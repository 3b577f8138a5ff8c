"""The operations on the audit."""

from __future__ import annotations

from typing import Any

from api.asgi import Answer, Request, encode
from api.service import Operations, Service
from api.wire.requests import LIMIT, MOST, instant_of, limit_of
from delayq.answers.service import AuditOut, audit_out
from delayq.client.audit import ACTIONS
from delayq.client.looking.audit import check_span
from delayq.domain.patterns import check_pattern

OPERATIONS = Operations("audit")


@OPERATIONS.add(
    "GET",
    "/v1/audit",
    "listAuditEntries",
    gives={200: AuditOut},
    problems=(400, 503),
    query={
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "The nextPageToken of the previous page."},
        "id": {"schema": {"type": "string", "maxLength": 128}, "description": "of a message"},
        "key": {"schema": {"type": "string"}, "description": "A business key of a message."},
        "topic": {"schema": {"type": "string", "maxLength": 255}, "description": "A pattern with * and ?."},
        "actor": {"schema": {"type": "string"}, "description": "The name of the actor, or the id of a key."},
        "action": {"schema": {"type": "string", "enum": list(ACTIONS)}},
        "from": {
            "schema": {"type": "string"},
            "description": "Earliest time of the change: RFC 3339 with its zone, or Unix ms.",
        },
        "to": {
            "schema": {"type": "string"},
            "description": "Latest time of the change, exclusive: RFC 3339 with its zone, or Unix ms.",
        },
    },
)
async def audit(service: Service, request: Request) -> Answer:
    """List manual changes

    Newest first. A key sees the changes of messages of topics that it may read; a key that may read all topics sees all
    changes. A page reads about 5,000 entries, so it may have fewer than `limit`; the last page has no token. A page is
    empty and has a token only if one second was not enough to find an entry.
    """
    given = request.query("limit", "pageToken", "id", "key", "topic", "actor", "action", "from", "to")
    limit, token = limit_of(given.get("limit")), given.get("pageToken")
    caller = request.caller
    wanted: dict[str, Any] = {name: given[name] for name in ("id", "key", "topic", "actor", "action") if name in given}
    begin, end = instant_of("from", given.get("from")), instant_of("to", given.get("to"))
    check_span(begin, end)
    wanted |= {"from_": begin, "to": end}
    if "topic" in given:
        caller.need_if_named("read", check_pattern(given["topic"], "topic"))
    everything = caller.everything("read")
    if not everything:
        wanted["may"] = lambda topic: "read" in caller.on(topic)
        token = None if token is None else service.door.unseal(token)
    page = await service.client.audit(limit, token, **wanted)
    token = page.next_token
    return Answer(200, encode(audit_out(page, token if token is None or everything else service.door.seal(token))))
