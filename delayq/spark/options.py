"""The options of the data source, with their meanings, in this one place.

Spark gives options as texts and ignores the case of their names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin
from zoneinfo import ZoneInfo

import msgspec

from delayq.base.errors import ConfigError, InvalidMessage
from delayq.base.secrets import as_utf8
from delayq.base.times import parse_duration, parse_instant
from delayq.domain.message import MAX_WINDOW, check_topic
from delayq.spark.rows.origin import Rejects

#: The options that Spark itself adds to a stream.
IGNORED: Final = ("checkpointlocation", "queryname")

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d\d)(?::(\d\d))?)?")
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of `df.write` and `df.writeStream`.

    Columns of the same name override `topic` and `tags`.
    """

    #: The address of Redis, which replaces the DELAYQ_REDIS_URL of the driver. 'env:NAME' and 'file:PATH' keep a
    #: password out of Spark's own pages: the driver reads them.
    redis_url: str = ""
    #: The namespace there, which replaces the DELAYQ_NAMESPACE of the driver.
    namespace: str = ""
    #: The topic of rows without one in a column `topic`.
    topic: str = ""
    #: The tags of rows without any in a column `tags`.
    tags: str = ""
    #: The window of rows without one in a column `window`: ms, or text such as '10m'.
    window: int | None = None
    #: Comma-separated columns: the id is a hash of the topic and these, instead of a column `id`.
    id_columns: tuple[str, ...] = ()
    #: The treatment of a row whose `expect_date` has passed and whose id does not exist. 'reject' it, 'skip' it (counted,
    #: not rejected), or schedule it for 'now'.
    past: Literal["reject", "skip", "now"] = "reject"
    #: Whether rows are scheduled whose id was cancelled before its message could be delivered. Rows that
    #: `backfill undo` cancelled are scheduled without it.
    again: bool = False
    #: The id of the run: messages get it as their property `backfill`, unless a row has one.
    run: str = ""
    #: A folder for the rejected rows, with the columns `reject_reason` and `reject_detail`. Every executor and the driver
    #: must see the same folder. It is a path on a shared file system, or a URI that pyarrow opens (s3://, hdfs://, gs://).
    #: Without it, a write that rejected rows fails at its end.
    rejects: str = ""
    #: The format of rejected rows, as JSON (`Rejects`): `delayq backfill` sets it, so that they are like the table.
    rejects_as: Rejects = Rejects()
    #: Maximum messages per second, over all tasks together; 0 is no limit.
    rate: int = 0
    #: The name under which the tasks write their counters to Redis, and the driver the totals: see `report`.
    report: str = ""
    #: The zone of timestamps without one (TIMESTAMP_NTZ); by default spark.sql.session.timeZone.
    time_zone: str = ""
    #: How long a task retries while Redis is unreachable or full, in ms.
    retry_for: int = 60_000
    #: Whether to reject rows whose topic no live worker has a route for.
    check_routes: bool = True

    @staticmethod
    def parse(given: Mapping[str, str]) -> WriteOptions:
        """Read the given options. Raises ConfigError for the first wrong option."""
        options = _convert(WriteOptions, given)
        if options.topic:
            try:
                check_topic(options.topic)
            except InvalidMessage as error:
                raise ConfigError(f"option {error}") from None
        for name, value in (("run", options.run), ("report", options.report)):
            if value and not _NAME.fullmatch(value):
                raise ConfigError(f"option {name}: 1 to 128 characters of A-Z a-z 0-9 . _ : -, not {value!r}")
        if options.window is not None and not 1 <= options.window <= MAX_WINDOW:
            raise ConfigError(f"option window: must be 1 to {MAX_WINDOW} ms, not {options.window}")
        if options.rate < 0:
            raise ConfigError("option rate: must be a number of messages per second, or 0 for no limit")
        if options.time_zone:
            zone(options.time_zone)
        return options


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of `spark.read`."""

    #: As for writing.
    redis_url: str = ""
    namespace: str = ""
    #: Only messages of this topic; the others are still read.
    topic: str = ""
    #: Only messages due from then on (Unix ms, or RFC 3339): earlier ones cost nothing.
    due_from: int | None = None
    #: Only messages due before then.
    due_to: int | None = None
    #: Only these queues, by number: '0,3,5-7'.
    queues: tuple[int, ...] = ()
    #: 'pending': messages that will be delivered, including parked ones. 'dead': dead letters, with their reasons. Or
    #: 'all'.
    state: Literal["pending", "dead", "all"] = "pending"
    #: The same as state 'dead'.
    dead: bool = False
    #: Maximum number of messages in one trip to Redis.
    page: int = 1_000
    #: Let Spark pass filters on topic, queue and due time, as if they were options. It needs
    #: spark.sql.python.filterPushdown.enabled=true.
    push_filters: bool = False
    #: How long a task retries while Redis is unreachable, in ms.
    retry_for: int = 60_000

    @staticmethod
    def parse(given: Mapping[str, str]) -> ReadOptions:
        """Read the given options. Raises ConfigError for the first wrong option."""
        options = _convert(ReadOptions, given)
        if options.dead and "state" in {name.lower() for name in given} and options.state != "dead":
            raise ConfigError(f"option dead: means state 'dead', but state is {options.state!r}; use one of them")
        if not 1 <= options.page <= 10_000:
            raise ConfigError("option page: 1 to 10000 messages")
        return msgspec.structs.replace(options, state="dead") if options.dead else options


Options = TypeVar("Options", WriteOptions, ReadOptions)


def _convert(cls: type[Options], given: Mapping[str, str]) -> Options:
    """Parse the options by their types. Raises ConfigError for unknown ones and for invalid values."""
    fields = {field.encode_name.lower(): field for field in msgspec.structs.fields(cls)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        field = fields.get(name.lower())
        if field is not None:
            values[field.name] = _read(field, text)
        elif name.lower() not in IGNORED:
            known = ", ".join(field.encode_name for field in fields.values())
            raise ConfigError(f"option {name}: there is no such option; there are {known}")
    return cls(**values)


def _read(field: msgspec.structs.FieldInfo, text: str) -> object:
    name = field.encode_name
    try:
        if name == "redisUrl":
            return _secret(text)
        if name in ("dueFrom", "dueTo"):
            return int(text) if re.fullmatch(r"\d{1,13}", text) else parse_instant(text)
        if name in ("retryFor", "window"):
            return int(text) if text.isdecimal() else parse_duration(text)
        if name == "rejectsAs":
            return msgspec.json.decode(text, type=Rejects)
        if name == "idColumns":
            return tuple(column for part in text.split(",") if (column := part.strip()))
        if name == "queues":
            return _numbers(text)
        if get_origin(field.type) is Literal and text not in get_args(field.type):
            raise ValueError(f"must be one of {', '.join(get_args(field.type))}, not {text!r}")
        return msgspec.convert(text.strip(), field.type, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"option {name}: {error}") from None


def _secret(text: str) -> str:
    kind, _, where = text.partition(":")
    if kind == "env":
        if where not in os.environ:
            raise ValueError(f"the environment of the driver has no {where}")
        return as_utf8(os.environ[where])
    if kind == "file":
        try:
            return Path(where).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ValueError(f"cannot read {where} on the driver: {error.strerror}") from None
    return text


def _numbers(text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        if match is None:
            raise ValueError("use queues such as '0,3,5-7'")
        first = int(match.group(1))
        last = int(match.group(2) or first)
        if last - first > 100_000:
            raise ValueError("is more than the number of queues")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def zone(name: str) -> tzinfo:
    """Return the zone of a name in Spark's format ('Europe/Berlin', 'UTC', '+09:00', 'GMT-3'). Raises ConfigError."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        away = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        return timezone(-away if sign == "-" else away)
    try:
        return ZoneInfo("UTC" if name == "Z" else name)
    except (ValueError, OSError, KeyError):  # KeyError: it is unknown
        raise ConfigError(f"{name!r} is not a time zone of this machine") from None
