"""Every plan of a client except scheduling, and what it returns. A plan is imported when a call first uses it.

Most programs only schedule. Importing all plans takes as long as importing msgspec and the store.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delayq.client.changing.advance import Advanced, begin_advance, step_of_advance
    from delayq.client.changing.by_key import by_key
    from delayq.client.changing.dead_letters import discard, redrive
    from delayq.client.changing.messages import Cancelled, Rescheduled, cancel, deliver_now, reschedule, spec_of
    from delayq.client.changing.policies import (
        Paused,
        PolicyChanged,
        Resumed,
        check_wait,
        delete_policy,
        pause,
        paused,
        put_policy,
        resume,
    )
    from delayq.client.consuming.groups import GroupDeleted, delete_group
    from delayq.client.consuming.handing_back import hand_back, hand_back_of, settlement_of
    from delayq.client.consuming.receiving import (
        LeaseChange,
        Leased,
        Settlement,
        extension,
        given_consumer,
        leases_to_ack,
        only_settlement,
        receive,
        settle,
    )
    from delayq.client.findings import Facts, Finding, findings, read_facts
    from delayq.client.findings.overview import Overview, overview
    from delayq.client.looking.audit import AuditPage, WantedEntries, audit
    from delayq.client.looking.counting import Counted, Forecast, count_messages, forecast
    from delayq.client.looking.dead_groups import DeadGroups, dead_groups
    from delayq.client.looking.dead_letters import DeadLetterPage, Wanted, dead_letters
    from delayq.client.looking.explain import Explanation, explain
    from delayq.client.looking.groups import ConsumerGroup, consumers, known_groups
    from delayq.client.looking.messages import find, get
    from delayq.client.looking.search import MOST_SECONDS, PAUSE, SECONDS, SearchPage
    from delayq.client.looking.search_by_key import search_of
    from delayq.client.looking.service import RouteState, nodes, queues, routes
    from delayq.client.looking.topics import Arriving, TopicState, arriving, read_policies, topic, topics

__all__ = [
    "MOST_SECONDS",
    "PAUSE",
    "SECONDS",
    "Advanced",
    "Arriving",
    "AuditPage",
    "Cancelled",
    "ConsumerGroup",
    "Counted",
    "DeadGroups",
    "DeadLetterPage",
    "Explanation",
    "Facts",
    "Finding",
    "Forecast",
    "GroupDeleted",
    "LeaseChange",
    "Leased",
    "Overview",
    "Paused",
    "PolicyChanged",
    "Rescheduled",
    "Resumed",
    "RouteState",
    "SearchPage",
    "Settlement",
    "TopicState",
    "Wanted",
    "WantedEntries",
    "arriving",
    "audit",
    "begin_advance",
    "by_key",
    "cancel",
    "check_wait",
    "consumers",
    "count_messages",
    "dead_groups",
    "dead_letters",
    "delete_group",
    "delete_policy",
    "deliver_now",
    "discard",
    "explain",
    "extension",
    "find",
    "findings",
    "forecast",
    "get",
    "given_consumer",
    "hand_back",
    "hand_back_of",
    "known_groups",
    "leases_to_ack",
    "nodes",
    "only_settlement",
    "overview",
    "pause",
    "paused",
    "put_policy",
    "queues",
    "read_facts",
    "read_policies",
    "receive",
    "redrive",
    "reschedule",
    "resume",
    "routes",
    "search_of",
    "settle",
    "settlement_of",
    "spec_of",
    "step_of_advance",
    "topic",
    "topics",
]  # fmt: skip

#: Where each of them is.
_PLACES = {
    "Advanced": "delayq.client.changing.advance",
    "Arriving": "delayq.client.looking.topics",
    "AuditPage": "delayq.client.looking.audit",
    "Cancelled": "delayq.client.changing.messages",
    "ConsumerGroup": "delayq.client.looking.groups",
    "Counted": "delayq.client.looking.counting",
    "DeadGroups": "delayq.client.looking.dead_groups",
    "DeadLetterPage": "delayq.client.looking.dead_letters",
    "Explanation": "delayq.client.looking.explain",
    "Facts": "delayq.client.findings",
    "Finding": "delayq.client.findings",
    "Forecast": "delayq.client.looking.counting",
    "GroupDeleted": "delayq.client.consuming.groups",
    "LeaseChange": "delayq.client.consuming.receiving",
    "MOST_SECONDS": "delayq.client.looking.search",
    "Overview": "delayq.client.findings.overview",
    "PAUSE": "delayq.client.looking.search",
    "Paused": "delayq.client.changing.policies",
    "PolicyChanged": "delayq.client.changing.policies",
    "Leased": "delayq.client.consuming.receiving",
    "Rescheduled": "delayq.client.changing.messages",
    "Resumed": "delayq.client.changing.policies",
    "RouteState": "delayq.client.looking.service",
    "SECONDS": "delayq.client.looking.search",
    "SearchPage": "delayq.client.looking.search",
    "Settlement": "delayq.client.consuming.receiving",
    "TopicState": "delayq.client.looking.topics",
    "Wanted": "delayq.client.looking.dead_letters",
    "WantedEntries": "delayq.client.looking.audit",
    "arriving": "delayq.client.looking.topics",
    "audit": "delayq.client.looking.audit",
    "begin_advance": "delayq.client.changing.advance",
    "by_key": "delayq.client.changing.by_key",
    "cancel": "delayq.client.changing.messages",
    "check_wait": "delayq.client.changing.policies",
    "consumers": "delayq.client.looking.groups",
    "count_messages": "delayq.client.looking.counting",
    "dead_groups": "delayq.client.looking.dead_groups",
    "dead_letters": "delayq.client.looking.dead_letters",
    "delete_group": "delayq.client.consuming.groups",
    "delete_policy": "delayq.client.changing.policies",
    "deliver_now": "delayq.client.changing.messages",
    "discard": "delayq.client.changing.dead_letters",
    "explain": "delayq.client.looking.explain",
    "extension": "delayq.client.consuming.receiving",
    "find": "delayq.client.looking.messages",
    "findings": "delayq.client.findings",
    "forecast": "delayq.client.looking.counting",
    "get": "delayq.client.looking.messages",
    "given_consumer": "delayq.client.consuming.receiving",
    "hand_back": "delayq.client.consuming.handing_back",
    "hand_back_of": "delayq.client.consuming.handing_back",
    "known_groups": "delayq.client.looking.groups",
    "leases_to_ack": "delayq.client.consuming.receiving",
    "nodes": "delayq.client.looking.service",
    "only_settlement": "delayq.client.consuming.receiving",
    "overview": "delayq.client.findings.overview",
    "pause": "delayq.client.changing.policies",
    "paused": "delayq.client.changing.policies",
    "put_policy": "delayq.client.changing.policies",
    "queues": "delayq.client.looking.service",
    "read_facts": "delayq.client.findings",
    "read_policies": "delayq.client.looking.topics",
    "receive": "delayq.client.consuming.receiving",
    "redrive": "delayq.client.changing.dead_letters",
    "reschedule": "delayq.client.changing.messages",
    "resume": "delayq.client.changing.policies",
    "routes": "delayq.client.looking.service",
    "search_of": "delayq.client.looking.search_by_key",
    "settle": "delayq.client.consuming.receiving",
    "settlement_of": "delayq.client.consuming.handing_back",
    "spec_of": "delayq.client.changing.messages",
    "step_of_advance": "delayq.client.changing.advance",
    "topic": "delayq.client.looking.topics",
    "topics": "delayq.client.looking.topics",
}


if not TYPE_CHECKING:  # type checkers know the names from above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value
