from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from delayq import Message, parse_instant
from delayq.base.local_time import shown
from delayq.client.consuming.giving_up import Letter, give_up
from delayq.client.known_routes import NO_WORKER
from delayq.domain.message import GROUP_PROPERTY
from delayq.store import commands
from delayq.store.commands import GroupRecord
from delayq.store.keys import KEYS, spread
from tests.cli.conftest import Cli, Given
from tests.support.queues import EPOCH

HOUR = 3_600_000


def body_of(given: Given, id: str) -> Any:
    found = given.client.get(id)
    assert found is not None
    assert found.record is not None
    return found.record.body


def test_schedule_takes_all_that_a_message_has(cli: Cli, given: Given) -> None:
    words = (
        "schedule demo x --delay 1h --tags paid --key order-1 --key user-2 --property a=1 --property b=x=y --id mine "
        "--ordering-key order-1 --max-attempts 3 --expire-after 10m"
    )
    found = given.client.get(cli(*words.split()).rows[0][0])
    assert found is not None
    assert found.record is not None
    record = found.record
    assert found.id.startswith("mine.")
    assert (record.tags, record.keys) == ("paid", ("order-1", "user-2"))
    assert record.properties == {"a": "1", "b": "x=y"}
    assert (record.ordering_key, record.max_attempts, record.expire_after) == ("order-1", 3, 600_000)
    printed = dict(cli("get", "mine").rows)  # the id that was given beside an ordering key is enough
    assert [printed[name] for name in ("state", "topic", "body", "keys", "properties")] == [
        "scheduled", "demo", "x", "order-1 user-2", "a=1 b=x=y"
    ]  # fmt: skip


def test_schedule_prints_id_and_due_time(cli: Cli, given: Given) -> None:
    def now() -> int:
        seconds, micro = given.admin.time()
        return int(seconds) * 1000 + int(micro) // 1000

    for when, delay in {
        "--delay 1h": HOUR, "--delay PT1H": HOUR, "--delay 3600s": HOUR, "--level 17": HOUR, "--level 99": 2 * HOUR
    }.items():  # fmt: skip
        before = now()
        due = json.loads(cli("schedule", "demo", "x", *when.split(), "--json").out)["dueMs"]
        assert before + delay <= due <= now() + delay
    ran = cli("schedule", "demo", "hello", "--at", "2033-01-31T08:00:00+02:00")
    assert (ran.code, ran.sentence()) == (0, f"{NO_WORKER}.")
    ((id, due, how),) = ran.rows
    assert (due, how) == (shown("2033-01-31T06:00:00.000Z"), "scheduled")
    assert body_of(given, id) == "hello"
    assert cli("schedule", "demo", "x", "--at", "2000000000123").rows[0][1] == shown(2_000_000_000_123)
    assert parse_instant(cli("schedule", "demo", "x", "--at", "1000000000000").rows[0][1]) > 1_600_000_000_000
    ran = cli("schedule", "demo", "x", "--at", "2000000000000", "--window", "10m", "--id", "mine", "--json")
    told = json.loads(ran.out)
    assert (told["dueMs"], told["window"]) == (2_000_000_000_000 + spread("mine", 600_000), 600_000)


def test_a_body_comes_from_a_file_or_from_stdin(cli: Cli, given: Given, tmp_path: Path) -> None:
    for raw, body in (("größer".encode(), "größer"), (b"\xff\x00", b"\xff\x00"), (b"", "")):
        (tmp_path / "body").write_bytes(raw)
        from_file = cli("schedule", "demo", "--body-file", tmp_path / "body", "--delay", "1h")
        from_stdin = cli("schedule", "demo", "--body-file", "-", "--delay", "1h", stdin=raw)
        assert body_of(given, from_file.rows[0][0]) == body
        assert body_of(given, from_stdin.rows[0][0]) == body


def test_a_json_body_keeps_all_its_digits(cli: Cli, given: Given) -> None:
    text = '{"price":1.50,"n":12345678901234567890123}'
    id = cli("schedule", "demo", text, "--json-body", "--delay", "1h").rows[0][0]
    assert f'"body":{text}' in cli("get", id, "--json").out
    assert cli("schedule", "demo", '"hi"', "--json-body", "--delay", "1h", "--id", "a").code == 0
    assert cli("schedule", "demo", "hi", "--delay", "1h", "--id", "a").rows[0][2] == "already scheduled"


def test_the_same_call_again_schedules_nothing_new_and_another_message_is_refused(cli: Cli, given: Given) -> None:
    first = cli("schedule", "demo", "x", "--delay", "1h", "--id", "a")
    again = cli("schedule", "demo", "x", "--delay", "1h", "--id", "a")
    assert first.rows[0][:2] == again.rows[0][:2]
    assert (first.rows[0][2], again.rows[0][2]) == ("scheduled", "already scheduled")
    other = cli("schedule", "demo", "y", "--delay", "1h", "--id", "a")
    assert "id a belongs to a message with other content" in other.refused()
    given.client.cancel("a")
    assert "was cancelled" in cli("schedule", "demo", "x", "--delay", "1h", "--id", "a").refused()


def test_cancel_says_each_result_and_is_0_only_if_all_are_cancelled(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    given.scheduled("b")
    ran = cli("cancel", "a", "b")
    assert (ran.code, ran.rows, ran.err) == (0, [["a", "cancelled"], ["b", "cancelled"]], "")
    ran = cli("cancel", "b", "nobody")
    assert (ran.code, ran.rows) == (1, [["b", "cancelled"], ["nobody", "notFound"]])
    results = json.loads(cli("cancel", "b", "nobody", "--json").out)["results"]
    assert results == [{"id": "b", "result": "cancelled"}, {"id": "nobody", "result": "notFound"}]
    for id, keys in (("c", ("order-1",)), ("d", ("order-1", "order-2")), ("e", ("order-2",))):
        given.scheduled(id, keys=keys)
    for _ in range(2):
        ran = cli("cancel", "--key", "order-1")
        assert (ran.code, ran.rows) == (0, [["c", "cancelled"], ["d", "cancelled"]])
    ran = cli("cancel", "--key", "order-3")
    assert (ran.code, ran.out, ran.sentence()) == (1, "", "no message has the key order-3.")


def test_get_explains_what_a_message_waits_for(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    rows = dict(cli("get", "a", "--explain").rows)
    assert rows["waits for"].startswith("due: it is due at ")
    assert json.loads(cli("get", "a", "--explain", "--json").out)["explain"]["waitsFor"] == "due"
    assert "waits for" not in dict(cli("get", "a").rows)
    for form in ((), ("--json",)):
        assert cli("explain", "a", *form).out == cli("get", "a", "--explain", *form).out
    assert (cli("explain", "nobody").code, cli("explain", "nobody", "--json").code) == (1, 1)


def test_get_and_explain_of_a_delivered_message_name_the_dead_letter_of_a_consumer_group(
    cli: Cli, given: Given
) -> None:
    one = given.pulled("a")
    keys = KEYS.queue(given.queue_of("a"))
    given.client.store.run(commands.ack(keys, EPOCH, [one]))
    assert dict(cli("explain", "a").rows)["explanation"].startswith("it was delivered at ")
    given.client.store.run(commands.record_group(KEYS, GroupRecord(topic="demo", group="mail", stream="stream")))
    letter = Message(id="a:mail", topic="demo", properties={GROUP_PROPERTY: "mail"}, expect_date=one.score)
    letters = [Letter(letter, 3, "no stock", GROUP_PROPERTY)]
    assert given.client.run(lambda context: give_up(context, letters)) == ["dead"]
    named = "the consumer group mail gave it up: its dead letter is a:mail"
    assert dict(cli("get", "a").rows)["reason"] == named
    rows = dict(cli("explain", "a").rows)
    assert rows["explanation"].endswith(f"; {named}")
    assert "waits for" not in rows
    assert cli("explain", "a:mail").code == 0


def test_deliver_now_says_what_is_due_by_then(cli: Cli, given: Given) -> None:
    for id in ("a", "b"):
        given.scheduled(id, keys=(id,))
    assert (ran := cli("deliver-now", "a", "nobody")).code == 1
    assert ran.rows == [["a", "scheduled"], ["nobody", "notFound"]]
    ran = cli("deliver-now", "--key", "b", "--force", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"results": [{"id": "b", "result": "scheduled"}]})
    found = given.client.get("b")
    assert found is not None
    assert found.state == "due"
    assert cli("deliver-now", "--key", "nobody").code == 1


def test_reschedule_moves_the_due_time_but_not_of_what_is_in_flight_or_dead(cli: Cli, given: Given) -> None:
    given.scheduled("c")
    ran = cli("reschedule", "c", "--at", "2033-01-01T00:00:00Z")
    assert (ran.code, ran.rows) == (0, [["c", shown("2033-01-01T00:00:00.000Z"), "scheduled"]])
    given.client.cancel("c")
    fields = dict(cli("get", "c").rows)
    assert (fields["state"], "topic" in fields) == ("cancelled", False)
    given.dead_letter("b", "the broker said no")
    assert "is a dead letter; redrive or discard it" in cli("reschedule", "b", "--delay", "1h").refused()
    fields = dict(cli("get", "b").rows)
    assert (fields["state"], fields["reason"], fields["attempts"]) == ("dead", "the broker said no", "1")
    given.pulled("a")
    assert "so its due time can no longer be changed" in cli("reschedule", "a", "--delay", "1h").refused()
    ran = cli("cancel", "a")
    assert (ran.code, ran.rows) == (1, [["a", "inFlight"]])


def test_an_unknown_id_is_status_1_and_a_sentence(cli: Cli, given: Given) -> None:
    for command in ("get nobody", "get nobody --json", "reschedule nobody --delay 1h"):
        ran = cli(*command.split())
        assert (ran.code, ran.out) == (1, "")
        assert ran.sentence().startswith("no message has the id nobody; ")


def test_a_key_that_no_message_has_is_status_1_and_a_sentence(cli: Cli, given: Given) -> None:
    ran = cli("find", "order-1")
    assert (ran.code, ran.out, ran.sentence()) == (1, "", "no message has the key order-1.")
    empty = {"messages": [], "looked": 0, "complete": True, "nextPageToken": None}
    assert json.loads(cli("find", "order-1", "--json").out) == empty
