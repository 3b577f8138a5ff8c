from __future__ import annotations

import base64

import pytest
from msgspec import Raw
from msgspec.json import encode

from delayq.answers.messages import MessageOut
from delayq.answers.redacting import redact

BODY = b'{"card":{"no":"4111","name":"x"},"items":[{"a":1,"b":2},{"a":0.10000000000000000001},7],"big":123456789012345678901234}'


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (["$.nothing", "$.items[9]", "$.card[0]", "$.big.x"], BODY),
        (["$.card"], BODY.replace(b'{"no":"4111","name":"x"}', b'"[redacted]"')),
        (["$.card.no", "$.card.no.x"], BODY.replace(b'"4111"', b'"[redacted]"')),
        (
            ["$.items[*].a"],
            BODY.replace(b'"a":1', b'"a":"[redacted]"').replace(b"0.10000000000000000001", b'"[redacted]"'),
        ),
        (
            ["$.items[2]", "$.big"],
            BODY.replace(b",7]", b',"[redacted]"]').replace(b"123456789012345678901234", b'"[redacted]"'),
        ),
    ],
)
def test_what_stands_at_the_paths_is_not_shown_and_all_else_as_it_came(paths: list[str], shown: bytes) -> None:
    as_json, as_text = (MessageOut("t", "", body=Raw(one)) for one in (BODY, encode(BODY.decode())))
    as_bytes = MessageOut("t", "", body_base64=base64.b64encode(BODY).decode())
    for one in (as_json, as_text, as_bytes):
        redact(one, paths)
    assert (as_json.body, as_text.body) == (Raw(shown), Raw(encode(shown.decode())))
    assert as_bytes.body_base64 == base64.b64encode(shown).decode()


def test_what_is_no_json_is_shown_as_it_is_unless_it_is_nested_too_deep_to_be_read() -> None:
    for body in ("order 42", "", '{"card":', "{'card': 1}", "[" * 100_000 + "]" * 100_000):
        message = MessageOut("t", "", body=Raw(encode(body)))
        redact(message, ["$.card"])
        assert message.body == Raw(encode('"[redacted]"' if body.startswith("[") else body))


@pytest.mark.parametrize(
    "text",
    [
        rb'{"card":"4111","cut":"\ud83d"}',
        rb'{"card":"4111","\udc00":1}',
        b'{"card":"4111","line":"a\tb"}',
        b'{"card":"4111","name":"Zo\xeb"}',
        '{"card":"4111"}'.encode("utf-16"),
    ],
)
def test_no_character_that_is_out_of_place_shows_what_is_not_to_be_shown(text: bytes) -> None:
    message = MessageOut(topic="t", expect_date="", body_base64=base64.b64encode(text).decode())
    redact(message, ["$.card"])
    assert isinstance(message.body_base64, str)
    shown = base64.b64decode(message.body_base64)
    assert b"4111" not in shown.replace(b"\0", b"")
    assert b"[redacted]" in shown
