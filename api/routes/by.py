"""The actor and the reason of a manual change, for the audit and the log."""

from __future__ import annotations

import re
from collections.abc import Iterable

import structlog

from api.asgi import Request
from api.auth.sessions import from_a_page
from api.service import Service
from api.wire.problems import Problem
from delayq.client.audit import By, new_act

#: The actor in the audit if the API needs no keys.
ANYBODY = "anybody"
#: The maximum number of ids in one log event.
MOST = 500
#: The maximum age of an act of several requests, in ms.
LONGEST_ACT = 3_600_000
_ACT = re.compile(r"\d{13}-[0-9a-f]{8}")
log = structlog.get_logger("api")


def by_hand(request: Request, reason: str | None = None) -> By:
    """Return the actor and the reason, from the body or the header Delayq-Reason. Raises Problem and InvalidMessage."""
    key = request.caller.key
    client = request.scope.get("client")
    by = By(
        actor=ANYBODY if key is None else key.name,
        key="" if key is None else key.id,
        address=client[0] if client else "",
        reason=_header(request) if reason is None else reason,
        act=_act(request),
        patterns=request.caller.patterns("admin"),
    )
    by.check()
    return by


def by_application(request: Request, reason: str | None = None) -> By:
    """Return the actor of an application's call, which the audit has only if the key is audited. Pages are always people."""
    key = request.caller.key
    if (key is not None and key.audit) or from_a_page(request.scope["headers"]):
        return by_hand(request, reason)
    return By(actor="" if key is None else key.name, written=False)


def _act(request: Request) -> str:
    """Return the act that a request is part of, from the header Delayq-Act. A page may make several requests for one
    act.

    An act must have begun recently. Otherwise the request is an act of its own.
    """
    found = [value for name, value in request.scope["headers"] if name == b"delayq-act"]
    act = found[0].decode("latin-1") if found else ""
    own = new_act()
    if _ACT.fullmatch(act) and abs(int(own[:13]) - int(act[:13])) <= LONGEST_ACT:
        return act
    return own


def _header(request: Request) -> str:
    found = [value for name, value in request.scope["headers"] if name == b"delayq-reason"]
    try:
        return found[0].decode() if found else ""
    except UnicodeDecodeError:
        raise Problem("invalid", "Delayq-Reason: is not UTF-8. Encode it as UTF-8.", field="Delayq-Reason") from None


def tell(service: Service, by: By, action: str, what: Iterable[str] = ()) -> None:
    """Log a change: the messages that were changed, or `what`."""
    if not (changed := [*by.changed, *what]):
        return
    service.metrics.audited += 1
    log.info(
        "audit",
        actor=by.actor,
        key=by.key,
        address=by.address,
        action=action,
        reason=by.reason,
        ids=changed[:MOST],
        count=len(changed),
    )
