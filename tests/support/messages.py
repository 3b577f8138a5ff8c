"""Messages for property tests, and the plan that schedules some."""

from __future__ import annotations

import string
from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st

from delayq.base.times import EARLIEST
from delayq.client.plan import Context, Plan
from delayq.client.scheduling.encoding import encode_all
from delayq.client.scheduling.schedule import Outcome, schedule_encoded
from delayq.domain.message import RESERVED, Message

ID_ALPHABET = string.ascii_letters + string.digits + "._:-"
# Text that UTF-8 can carry, without control characters, line breaks and lone surrogates.
PLAIN = st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="\u2028\u2029")
VISIBLE = st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"])

ids = st.text(ID_ALPHABET, min_size=1, max_size=128)


def _is_for_callers(name: str) -> bool:
    return not name.startswith(RESERVED)


topics = st.text(ID_ALPHABET, min_size=1, max_size=255).filter(_is_for_callers)
texts = st.text(PLAIN, min_size=1, max_size=60)
keys = st.lists(st.text(VISIBLE, min_size=1, max_size=60).filter(_is_for_callers), unique=True, max_size=16).map(tuple)
properties = st.dictionaries(texts, st.text(PLAIN, max_size=60), max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)
bodies = st.text(st.characters(codec="utf-8")) | st.binary() | json_values
dues = st.one_of(
    st.fixed_dictionaries({"delay_time": st.integers(0, 10 * 365 * 86_400_000)}),
    st.fixed_dictionaries({"expect_date": st.integers(EARLIEST, 2_000_000_000_000)}),
    st.fixed_dictionaries({"delay_level": st.integers(1, 40)}),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message that is right in every field."""
    message = Message(
        topic=draw(topics),
        body=draw(bodies),
        tags=draw(st.just("") | texts),
        keys=draw(keys),
        properties=draw(properties),
        id=draw(st.none() | ids),
        ordering_key=draw(st.just("") | texts),
        max_attempts=draw(st.none() | st.integers(1, 1_000)),
        expire_after=draw(st.none() | st.integers(1, 10 * 365 * 86_400_000)),
    )
    return msgspec.structs.replace(message, **draw(dues))


def schedule_messages(context: Context, wanted: Iterable[Message], now: int) -> Plan[list[Outcome]]:
    """What a client does with messages, once it knows its context."""
    return schedule_encoded(context, encode_all(wanted, context.limits, context.routes, now))
