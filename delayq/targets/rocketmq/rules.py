"""The limits of RocketMQ for a message that no setting of a broker raises."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: The prefix of properties that delayq adds. It has no '-', which SQL filters of consumers refuse.
OWN: Final = "delayq_"
NO_BODY: Final = "is empty, and RocketMQ has no messages without a body"
#: Characters of a topic's name.
_LONGEST: Final = 127
_NO_TOPIC = re.compile("[^A-Za-z0-9_-]")
#: Names of properties that RocketMQ uses by itself: `STRING_HASH_SET` of its MessageConst (5.5.0).
_RESERVED: Final = (
    "1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG "
    "CORRELATION_ID DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO "
    "INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG "
    "MSG_REGION MSG_TYPE ORIGIN_GROUP ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME "
    "REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS TIMER_DELAY_LEVEL TIMER_DELAY_MS "
    "TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS TIMER_OUT_MS "
    "TIMER_ROLL_TIMES TRACE_ON TRANSFER_FLAG TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT "
    "_SYS_MSG_PRIORITY_ __BORNHOST __CRC32# __LITE_TOPIC "
)
RESERVED: Final = frozenset(_RESERVED.split())


def topic_of(template: str, topic: str) -> str:
    """The RocketMQ topic of messages of `topic`. Characters that its name cannot have become '-'."""
    return template.replace("{topic}", _NO_TOPIC.sub("-", topic))


def topic_refusal(name: str) -> str:
    """Why RocketMQ can have no topic of this name; '' if it can."""
    if len(name) <= _LONGEST:
        return ""
    return (
        f"RocketMQ's topics have names of at most {_LONGEST} characters, and {name[:40]!r}… has {len(name)}; use a "
        "shorter topic, or name RocketMQ's in the route's option topic"
    )


def tag_refusal(tags: str) -> str:
    """Why RocketMQ does not take the tag; '' if it does."""
    if "|" in tags:
        return "RocketMQ takes one tag, without a '|': that stands between the tags of a subscription"
    return "RocketMQ takes no tag of white space alone" if tags and tags.isspace() else ""


def properties_refusal(names: Iterable[str]) -> str:
    """Why RocketMQ does not take properties of these names; '' if it does."""
    for name in names:
        if name.startswith(OWN):
            return f"{name!r}: names that begin with {OWN} are delayq's own in RocketMQ; give it another name"
        if name in RESERVED:
            return f"{name!r} is a name of RocketMQ's own; give it another one"
    return ""
