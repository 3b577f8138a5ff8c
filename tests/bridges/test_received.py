"""Messages as bytes: whatever a producer wrote, it is read as it was meant, or refused by name."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pika
import pytest
from pika.adapters.select_connection import IOLoop

from delayq.base.errors import InvalidMessage
from delayq.bridges.amqp_messages import Reader
from delayq.domain.message import Limits, Message
from delayq.targets.rabbitmq.received import ReceivedProperties
from delayq.targets.rabbitmq.stream import BrokerStream
from tests.support.amounts import amount
from tests.support.amqp_wire import encoded, field, long, timestamp

NOW = 1_796_119_200_000


def text_of(raw: bytes) -> bytes:
    return b"S" + long(raw)


def bytes_of(raw: bytes) -> bytes:
    return b"x" + long(raw)


def array_of(raw: bytes) -> bytes:
    return b"A" + long(raw)


def table_of(raw: bytes) -> bytes:
    return b"F" + long(raw)


DEEP = b""
for _ in range(20_000):
    DEEP = array_of(DEEP)


def read(raw: bytes, *, routing_key: Any = "orders", by_timestamp: bool = False, told: Any = None) -> Message:
    """The message with these properties, as it is scheduled."""
    method = pika.spec.Basic.Deliver(exchange="shop", routing_key=routing_key)
    tell = told.append if told is not None else lambda text: None
    reader = Reader("{routing_key}", Limits(), tell, by_timestamp=by_timestamp)
    message = reader.read(method, ReceivedProperties(raw), b"x", NOW)
    message.validate(Limits(), NOW)
    return message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (field("d", "d", 19.99), "19.99"),
        (field("f", "f", 19.99), "19.99"),
        (field("d", "d", 0.5), "0.5"),
        (field("d", "d", 1e300), "1e+300"),
        (field("d", "d", -0.0), "-0.0"),
        (field("f", "f", 16777216.0), "16777216.0"),
        (b"f\x7f\x7f\xff\xff", "3.4028235e+38"),
        (field("d", "d", float("inf")), "inf"),
        (field("f", "f", float("nan")), "nan"),
        (b"D\x02" + struct.pack(">i", 1999), "19.99"),
        (b"D\x01" + struct.pack(">i", -15), "-1.5"),
        (b"D\x00" + struct.pack(">i", 7), "7"),
        (field("l", "q", -(2**63)), str(-(2**63))),
        (field("L", "q", 2**63 - 1), str(2**63 - 1)),
        (field("I", "i", -7), "-7"),
        (field("i", "I", 2**32 - 1), str(2**32 - 1)),
        (field("s", "h", -3), "-3"),
        (field("U", "h", -3), "-3"),
        (field("u", "H", 65_535), "65535"),
        (field("b", "b", -128), "-128"),
        (field("B", "B", 255), "255"),
        (b"t\x01", "true"),
        (b"t\x00", "false"),
        (text_of("größe".encode()), "größe"),
        (timestamp(1_772_000_000), "2026-02-25T06:13:20Z"),
        (timestamp(0), "1970-01-01T00:00:00Z"),
    ],
)
def test_a_header_is_kept_as_it_was_meant(value: bytes, text: str) -> None:
    told: list[str] = []
    assert read(encoded({b"h": value}, message_id=b"m-1"), told=told).properties == {"h": text}
    assert told == []


@pytest.mark.parametrize(
    "value",
    [
        b"V",
        bytes_of(b"ok"),
        text_of(b"\xe9"),
        array_of(b""),
        table_of(b""),
        DEEP,
        table_of(DEEP),
        array_of(b"T" + b"\xff" * 8),
    ],
    ids=range(8),
)
def test_a_header_that_is_no_text_and_no_number_is_left_out_and_told(value: bytes) -> None:
    told: list[str] = []
    raw = encoded({b"odd": value, b"h": text_of(b"kept"), b"x-delay": field("I", "i", 500)}, message_id=b"m-1")
    message = read(raw, told=told)
    assert (message.properties, message.delay_time) == ({"h": "kept"}, 500)
    assert told == ["the header 'odd' is omitted where it is neither text nor a number"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            encoded({b"created": timestamp(1_772_000_000_000)}),
            "headers: 'created': the time 1772000000000 is not between",
        ),
        (encoded({b"born": timestamp(-14_256_000)}), "'born': the time -14256000 is not between 1970 and 9999"),
        (encoded({b"pr\xe9nom": text_of(b"x")}), r"headers: a name is not UTF-8: b'pr\\xe9nom'"),
        (encoded({b"h": b"Z123"}), "headers: 'h': it is of the kind 'Z'"),
        (encoded({b"h": array_of(b"Z123")}), "headers: 'h': it is of the kind 'Z'"),
        (encoded({b"h": b"S\xff\xff\xff\xff"}), "headers: they end too early"),
        (encoded({b"h": b"I\x00"}), "headers: they end too early"),
        (encoded({b"h": b""}), "headers: they end too early"),
        (encoded(message_id=b"commande-\xe9"), r"message-id: it is not UTF-8: b'commande-\\xe9'"),
        (encoded(correlation_id=b"\xff\x00"), "correlation-id: it is not UTF-8"),
        (encoded(content_type=b"\xff"), "content-type: it is not UTF-8"),
        (encoded(reply_to=b"\xc3"), "reply-to: it is not UTF-8"),
        (encoded(type=b"line\nbreak"), "amqp-type: it is too long, or has control"),
        (encoded(message_id=b"line\nbreak"), "amqp-message-id: it is too long, or has control"),
        (encoded({b"amqp-type": text_of(b"a")}, type=b"b"), "headers: 'amqp-type' already has another value"),
        (
            encoded({b"amqp-message-id": text_of(b"a")}, message_id=b"no id/"),
            "headers: 'amqp-message-id' already has another value",
        ),
        (encoded({b"x-delay": field("d", "d", float("nan"))}), "x-delay: must be a number of ms, not nan"),
        (encoded({b"x-delay": field("d", "d", 1e300)}), "delayTime: "),
        (encoded({b"x-delay": text_of(b"\xff")}), "x-delay: must be a number of ms"),
        (encoded({b"x-delay": timestamp(5)}), "x-delay: must be a number of ms"),
        (encoded({b"delayq-tags": bytes_of(b"t")}), "delayq-tags: is text"),
        (encoded({b"delayq-keys": array_of(field("I", "i", 7))}), "delayq-keys: is text"),
        (encoded(message_id=b"m")[:-1], "properties: they end too early"),
        (b"", "properties: they end too early"),
        (b"\x00\x01\x80\x00", "properties: AMQP has no more than 15"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_read_or_kept_is_refused_by_name(raw: bytes, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        read(raw)


def test_a_routing_key_or_an_exchange_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="topic: the routing key is not UTF-8"):
        read(encoded(message_id=b"m-1"), routing_key=b"orders.\xe9")
    reader = Reader("{exchange}.x", Limits(), lambda text: None)
    with pytest.raises(InvalidMessage, match="topic: the exchange is not UTF-8"):
        reader.read(pika.spec.Basic.Deliver(exchange=b"\xff", routing_key="a"), ReceivedProperties(encoded()), b"", NOW)


def test_the_id_is_known_also_of_a_message_that_is_refused() -> None:
    for headers in ({b"at": timestamp(-1)}, {b"\xff": text_of(b"x")}, {b"h": b"Z1"}, {b"h": b"I\x00"}):
        properties = ReceivedProperties(encoded(headers, message_id=b"m-1"))
        assert (properties.message_id, properties.refusal is not None) == ("m-1", True)


def test_a_delay_with_a_fraction_is_never_early() -> None:
    for value, delay in ((1.0, 1), (1.25, 2), (-0.5, 0), (0.0, 0)):
        assert read(encoded({b"x-delay": field("d", "d", value)})).delay_time == delay
    assert read(encoded({b"x-delay": b"D\x01" + struct.pack(">i", 15)})).delay_time == 2


DELAYED = {b"x-delay": field("I", "i", 60_000)}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (encoded(DELAYED, timestamp=NOW), f"timestamp: must be in seconds since 1970, .* not {NOW}"),
        (encoded(DELAYED, timestamp=-1), "timestamp: must be in seconds"),
        (encoded(DELAYED, timestamp=0), "timestamp: must be in seconds"),
        (encoded(DELAYED, timestamp=2**63 - 1), "timestamp: must be in seconds"),
        (encoded(DELAYED | {b"timestamp_in_ms": field("l", "q", NOW // 1000)}), "timestamp_in_ms: must be Unix ms"),
        (
            encoded(DELAYED | {b"timestamp_in_ms": field("d", "d", NOW)}, timestamp=NOW // 1000),
            "timestamp_in_ms: must be",
        ),
        (encoded(DELAYED | {b"timestamp_in_ms": text_of(b"now")}), "timestamp_in_ms: must be Unix ms, .* not 'now'"),
    ],
    ids=range(7),
)
def test_a_timestamp_of_another_unit_is_refused_if_the_delay_counts_from_it(raw: bytes, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        read(raw, by_timestamp=True)
    assert read(raw).delay_time == 60_000


# -- any bytes -------------------------------------------------------------------------------------------------------------


def some_value(chance: random.Random, depth: int = 0) -> bytes:
    """A value that AMQP allows, or nearly."""
    kind = chance.choice("tbBsUuIilLfdDTSxAFVZ" if depth < 4 else "tIdTS")
    size = {"t": 1, "b": 1, "B": 1, "s": 2, "U": 2, "u": 2, "I": 4, "i": 4, "f": 4, "D": 5, "V": 0, "Z": 3}.get(kind, 8)
    if kind in "SxAF":
        inner = chance.randbytes(chance.randrange(20))
        if kind == "A":
            inner = b"".join(some_value(chance, depth + 1) for _ in range(chance.randrange(4)))
        elif kind == "F":
            inner = b"".join(b"\1k" + some_value(chance, depth + 1) for _ in range(chance.randrange(4)))
        return kind.encode() + long(inner)
    return kind.encode() + chance.choice((chance.randbytes(size), b"\0" * size, b"\xff" * size))


def some_bytes(chance: random.Random) -> bytes:
    """Properties, of which some bytes may be wrong."""
    names = (
        b"x-delay",
        b"delayq-tags",
        b"delayq-keys",
        b"timestamp_in_ms",
        b"h",
        b"",
        chance.randbytes(3),
        b"amqp-type",
    )
    headers = {chance.choice(names): some_value(chance) for _ in range(chance.randrange(6))}
    fields: dict[str, Any] = {
        name: chance.choice((b"plain", b"", chance.randbytes(chance.randrange(9)), b"\xc3\xa9 \n"))
        for name in ("content_type", "correlation_id", "message_id", "expiration", "type", "cluster_id")
        if chance.random() < 0.3
    }
    if chance.random() < 0.3:
        fields["timestamp"] = chance.choice((0, NOW, NOW // 1000, NOW // 1000, -1, 2**63 - 1))
    raw = bytearray(encoded(headers, **fields))
    for _ in range(chance.choice((0, 0, 1, 3))):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw[: chance.randrange(len(raw))] if chance.random() < 0.1 else raw)


@pytest.mark.parametrize("seed", range(amount(2, 200)))
def test_no_bytes_raise_anything_but_a_refusal(seed: int) -> None:
    chance = random.Random(seed)
    scheduled = 0
    for _ in range(6_000):
        raw = some_bytes(chance)
        with contextlib.suppress(InvalidMessage):
            message = read(raw, by_timestamp=chance.random() < 0.5)
            scheduled += 1
            for name, value in message.properties.items():
                assert type(value) is str and not value.startswith(("b'", "Decimal(", "datetime")), name
    assert scheduled > 200, "many of them are read in full"


def test_a_single_is_the_shortest_text_that_means_the_same() -> None:
    chance = random.Random(7)
    for _ in range(amount(2_000, 100_000)):
        raw = chance.randbytes(4)
        (number,) = struct.unpack(">f", raw)
        text = read(encoded({b"h": b"f" + raw})).properties["h"]
        if number == number:
            assert struct.pack(">f", float(text)) == raw if abs(number) != float("inf") else float(text) == number


class Transport:
    """Where a connection writes: nowhere."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        """Nothing."""


def some_frames(chance: random.Random) -> bytes:
    """A few frames, of which some bytes may be wrong."""
    frames = b""
    for _ in range(1 + chance.randrange(4)):
        kind = chance.choice((1, 2, 2, 2, 3, 8, chance.randrange(256)))
        content = b"\0\x3c\0\0" + struct.pack(">Q", chance.choice((0, 1, 2**40))) + some_bytes(chance)
        method = struct.pack(">HH", chance.choice((10, 20, 60, 85, 99)), chance.randrange(80))
        data = content if kind == 2 else method + chance.randbytes(chance.randrange(30))
        frames += struct.pack(">BHI", kind, chance.randrange(3), len(data)) + data + b"\xce"
    raw = bytearray(frames)
    for _ in range(chance.choice((0, 0, 1, 4))):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw)


@pytest.mark.parametrize("seed", range(amount(2, 100)))
def test_no_frames_raise_anything_in_the_thread_that_reads_them(seed: int) -> None:
    """They lose the connection at most; a header of a message does not even that."""
    chance = random.Random(seed)
    lost = 0
    parameters, loop = pika.ConnectionParameters(), IOLoop()
    for _ in range(700):
        connection, transport = (
            BrokerStream(parameters, custom_ioloop=loop, internal_connection_workflow=False),
            Transport(),
        )
        connection._proto_connection_made(transport)
        connection._on_data_available(some_frames(chance))
        lost += transport.aborted
        header = b"\0\x3c\0\0" + bytes(8) + some_bytes(chance)
        connection._frame_buffer = struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce"
        size, frame = connection._read_frame()
        assert size == len(connection._frame_buffer) and isinstance(frame.properties, ReceivedProperties)
    loop.close()
    assert 0 < lost < 700
