"""Who changed what by hand."""

from __future__ import annotations

from typing import Any

from api.asgi import Answer, Request, encode
from api.service import Operations, Service
from api.wire.requests import LIMIT, MOST, instant_of, limit_of
from delayq.answers.service import AuditOut, audit_out
from delayq.client.audit import ACTIONS
from delayq.client.looking.audit import check_span
from delayq.patterns import check_pattern

__all__ = ["OPERATIONS"]

OPERATIONS = Operations("audit")


@OPERATIONS.add(
    "GET",
    "/v1/audit",
    "listAuditEntries",
    gives={200: AuditOut},
    problems=(400, 503),
    query={
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "the nextPageToken of the page before"},
        "id": {"schema": {"type": "string", "maxLength": 128}, "description": "of a message"},
        "key": {"schema": {"type": "string"}, "description": "a business key of a message"},
        "topic": {"schema": {"type": "string", "maxLength": 255}, "description": "a pattern with * and ?"},
        "actor": {"schema": {"type": "string"}, "description": "a name, or the id of a key"},
        "action": {"schema": {"type": "string", "enum": list(ACTIONS)}},
        "from": {"schema": {"type": "string"}, "description": "made from then on: RFC 3339 with its zone, or Unix ms"},
        "to": {"schema": {"type": "string"}, "description": "made before: RFC 3339 with its zone, or Unix ms"},
    },
)
async def audit(service: Service, request: Request) -> Answer:
    """Look at who changed what by hand

    The newest first. A key sees what concerns messages of topics that it may read; one that may read all sees the rest,
    too. A page looks at 5,000 entries or so: it may have fewer than `limit`; the last page has no token. A page has none and a
    token only if a second was not enough to find one.
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
