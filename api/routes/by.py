"""Who changes something by hand, and why: what the audit is told of a request, and the log."""

from __future__ import annotations

import re
from collections.abc import Iterable

import structlog

from api.asgi import Request
from api.auth.sessions import from_a_page
from api.service import Service
from api.wire.problems import Problem
from delayq.client.audit import By, new_act

__all__ = ["by_application", "by_hand", "tell"]

#: Whom the audit names where the API takes no keys.
ANYBODY = "anybody"
#: Ids in one event of the log.
MOST = 500
#: How long ago an act of several requests may have begun, in ms.
LONGEST_ACT = 3_600_000
_ACT = re.compile(r"\d{13}-[0-9a-f]{8}")
log = structlog.get_logger("api")


def by_hand(request: Request, reason: str | None = None) -> By:
    """Of what people do. The reason is that of the body, or of the header Delayq-Reason; raises Problem, InvalidMessage."""
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


def by_application(request: Request, reason: str | None = None) -> By | None:
    """Of what applications do all day: nobody, unless the key says that it is to be written down. Pages are for people."""
    key = request.caller.key
    written = (key is not None and key.audit) or from_a_page(request.scope["headers"])
    return by_hand(request, reason) if written else None


def _act(request: Request) -> str:
    """The act that a request is a part of, by the header Delayq-Act: what a page does in several requests. It is one that began
    lately; otherwise the request is an act of its own.
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
        raise Problem("invalid", "Delayq-Reason: is not UTF-8.", field="Delayq-Reason") from None


def tell(service: Service, by: By | None, action: str, what: Iterable[str] = ()) -> None:
    """Log what was changed, for those who ship logs: messages that are written down as changed by him, or `what`."""
    if by is None or not (changed := [*by.changed, *what]):
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
