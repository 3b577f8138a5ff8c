"""Durations and times of the Python client, as ms, timedelta, datetime or text."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from delayq import AsyncClient, Client, Filter, InvalidMessage, Message, Policy, Scheduled, Settings
from delayq.client.audit import By
from delayq.client.looking.audit import WantedEntries
from delayq.domain.message import Limits
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

PATIENT = Settings(redis_timeout=REDIS_TIMEOUT)
HALF_AN_HOUR = 1_800_000
AT = 1_801_382_400_000
NAIVE = datetime(2027, 1, 31, 8)  # noqa: DTZ001  # it is what is refused
#: The same in several ways, and what is refused with what it says.
DURATIONS: dict[Any, int] = {
    timedelta(minutes=30): HALF_AN_HOUR, "30m": HALF_AN_HOUR, "PT30M": HALF_AN_HOUR, HALF_AN_HOUR: HALF_AN_HOUR,
    timedelta(microseconds=1): 1, timedelta(milliseconds=1, microseconds=1): 2,
}  # fmt: skip
NO_DURATIONS: dict[Any, str] = {
    "30": "use a duration", "soon": "use a duration", 1.5: "integer", True: "integer", b"30m": "integer",
    timedelta(milliseconds=-1): "", timedelta.max: "must be between", timedelta.min: "must be between",
    AT * 10**6: "", datetime(2027, 1, 31, tzinfo=UTC): "integer",
}  # fmt: skip
TIMES: dict[Any, int] = {
    datetime(2027, 1, 31, 8, tzinfo=UTC): AT,
    datetime(2027, 1, 31, 10, tzinfo=timezone(timedelta(hours=2))): AT,
    datetime(2027, 1, 31, 9, tzinfo=ZoneInfo("Europe/Berlin")): AT,
    datetime(2027, 1, 31, 8, 0, 0, 1, tzinfo=UTC): AT + 1,
    "2027-01-31T08:00:00Z": AT,
    AT: AT,
}  # fmt: skip
NO_TIMES: dict[Any, str] = {
    NAIVE: "the datetime 2027-01-31T08:00:00 has no time zone", date(2027, 1, 31): "the date 2027-01-31 has no time",
    "2027-01-31": "use a date", "tomorrow": "use a date", float(AT): "integer", timedelta(1): "integer",
}  # fmt: skip


def make_policy(**fields: Any) -> Policy:
    return Policy(name="p", match="t", **fields)


@pytest.mark.parametrize("given", DURATIONS)
def test_a_duration_is_ms_a_timedelta_or_a_text(given: Any) -> None:
    ms = DURATIONS[given]
    message = Message(topic="t", delay_time=given, expire_after=given, window=given)
    assert (message.delay_time, message.expire_after, message.window) == (ms, ms, ms)
    message.validate(Limits(), AT)
    for same in (copy.copy(message), pickle.loads(pickle.dumps(message)), msgspec.structs.replace(message, topic="t")):
        assert same == message
    assert msgspec.structs.replace(message, window=given).window == ms
    policy = Policy(name="p", match="t", window=given, expire_after=given, backoff=(given, 5))
    policy.check(Limits())
    assert (policy.window, policy.expire_after, policy.backoff) == (ms, ms, (ms, 5))


@pytest.mark.parametrize("given", NO_DURATIONS, ids=repr)
def test_what_is_no_duration_is_refused_with_its_field(given: Any) -> None:
    for field, name in (("delay_time", "delayTime"), ("expire_after", "expireAfter"), ("window", "window")):
        fields: dict[str, Any] = {field: given} if field == "delay_time" else {"expect_date": AT, field: given}
        message = Message(topic="t", **fields)
        with pytest.raises(InvalidMessage, match=f"^{name}: .*{NO_DURATIONS[given]}"):
            message.validate(Limits(), AT)
    for field, name in (("window", "window"), ("expire_after", "expireAfter"), ("backoff", "backoff")):
        with pytest.raises(InvalidMessage, match=f"^{name}: "):
            make_policy(**{field: (given,) if field == "backoff" else given}).check(Limits())


@pytest.mark.parametrize("given", TIMES, ids=repr)
def test_a_time_is_unix_ms_an_aware_datetime_or_a_text(given: Any) -> None:
    message = Message(topic="t", expect_date=given)
    message.validate(Limits(), AT)
    assert message.expect_date == TIMES[given]
    assert (Filter(due_from=given).due_from, WantedEntries(from_=given).from_) == (TIMES[given], TIMES[given])


@pytest.mark.parametrize("given", NO_TIMES, ids=repr)
def test_what_is_no_time_is_refused_with_its_field(given: Any) -> None:
    makers: dict[str, Callable[[], object]] = {
        "expectDate": lambda: Message(topic="t", expect_date=given).validate(Limits(), AT),
        "dueFrom": lambda: Filter(due_from=given),
        "dueTo": lambda: Filter(due_to=given),
        "from": lambda: WantedEntries(from_=given),
    }
    for name, make in makers.items():
        with pytest.raises(InvalidMessage, match=f"^{name}: .*{NO_TIMES[given]}"):
            make()


def test_an_item_that_is_no_message_or_has_no_time_is_refused_by_itself(valkey: ServerUnderTest) -> None:
    with Client(valkey.url, settings=PATIENT) as client:
        wrong: list[Any] = [None, {"topic": "t"}, Message(topic="t", expect_date=NAIVE), "x", Message]
        given: list[Any] = [
            Message(topic="t", delay_time="1h"),
            *wrong,
            Message(topic="t", delay_time=timedelta(hours=1)),
        ]
        first, *refused, last = client.schedule_many(given)
        assert isinstance(first, Scheduled)
        assert isinstance(last, Scheduled)
        assert [str(one).partition(";")[0] for one in refused] == [
            "message: item 1 has the type NoneType", "message: item 2 has the type dict",
            "expectDate: the datetime 2027-01-31T08:00:00 has no time zone", "message: item 4 has the type str",
            "message: item 5 has the type StructMeta",
        ]  # fmt: skip
        for one in wrong[:2]:
            with pytest.raises(InvalidMessage, match="it must be a Message"):
                client.schedule(one)


async def test_each_call_that_takes_a_time_or_a_duration_takes_all_of_them(valkey: ServerUnderTest) -> None:
    ahead = datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)
    async with AsyncClient(valkey.url, settings=PATIENT) as client:
        done = await client.schedule(Message(topic="t", expect_date=ahead, id="a"))
        assert done.due == 2_000_000_000_000
        assert (await client.reschedule("a", expect_date=ahead + timedelta(seconds=1))).due == 2_000_000_001_000
        assert (await client.reschedule("a", delay_time=timedelta(hours=1))).result == "scheduled"
        assert (await client.reschedule("a", expect_date="2033-05-18T03:33:20Z")).due == 2_000_000_000_000
        page = await client.search(Filter(due_from=ahead, due_to=ahead + timedelta(milliseconds=1)))
        assert [one.id for one in page.messages] == ["a"]
        found = await client.forecast(ahead, ahead + timedelta(hours=2), timedelta(hours=1))
        assert found.messages == [1, 0]
        assert (await client.forecast(ahead, "2033-05-18T05:33:20Z", "1h")).messages == [1, 0]
        assert (await client.pause("t", until=ahead, wait=timedelta(0), by=By(actor="me"))).changed
        assert (await client.policies()).pauses["t"].until == 2_000_000_000_000
        assert (await client.pause("t", until="2033-05-18T03:33:21Z", wait="0s", by=By(actor="me"))).changed
        assert len((await client.audit(from_=ahead - timedelta(days=3_650), to=ahead)).entries) == 2
        assert (await client.dead_letters(from_=ahead, to=ahead + timedelta(1))).letters == []
        for call in (
            client.reschedule("a", expect_date=NAIVE),
            client.forecast(NAIVE, ahead, 1),
            client.pause("t", until=NAIVE),
            client.audit(to=NAIVE),
            client.dead_letters(from_=NAIVE),
        ):
            with pytest.raises(InvalidMessage, match="has no time zone"):
                await call
        with pytest.raises(InvalidMessage, match=r"^step: use a duration"):
            await client.forecast(ahead, ahead + timedelta(1), "hourly")
