"""Keys come from a file, which may change, and be broken; who tries too often is locked out; a rate is kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

import api.auth.keys_file
from api.app import create_app
from api.auth.caller import ANYBODY
from api.auth.keys_file import Door
from api.auth.rates import Attempts, Bucket
from api.wire.problems import Problem
from delayq import ConfigError
from delayq.config import Settings, load_settings
from delayq.testing import ManualClock
from tests.api.conftest import Serving, assert_refused, until_status
from tests.support.keys import KeyFile


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    file = KeyFile(tmp_path / "keys.yaml")
    file.add("shop")
    return file


def door(keys: KeyFile, clock: ManualClock | None = None) -> Door:
    return Door(load_settings(api_keys=str(keys.path)), clock or ManualClock())


def scope(text: str, host: str = "10.0.0.1") -> dict[str, Any]:
    return {"headers": [(b"authorization", f"Bearer {text}".encode())], "client": (host, 1234)}


def kind(door: Door, text: str, host: str = "10.0.0.1") -> str:
    """How it ends for one who comes with this key."""
    try:
        door.enter(scope(text, host), "/v1/queues")
    except Problem as problem:
        return problem.kind
    return "in"


def wrong(text: str) -> str:
    return text[:-1] + ("A" if text[-1] != "A" else "B")


# -- the file --------------------------------------------------------------------------------------------------------------


def test_a_changed_file_is_taken_and_a_revoked_key_refused(keys: KeyFile, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(keys.path)
    one, shop = Door(load_settings(api_keys=str(link)), ManualClock()), keys.texts["shop"]
    keys.add("press")
    assert kind(one, keys.texts["press"]) == "unauthorized"
    one.look()
    assert kind(one, keys.texts["press"]) == "in"
    # Size and time may stay: so rsync --times --inplace and the like may leave the file.
    before = keys.path.stat()
    keys.path.write_bytes(keys.path.read_bytes().replace(keys.keys[0].hash.encode(), b"sha256:" + b"0" * 64))
    os.utime(keys.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert keys.path.stat().st_size == before.st_size
    one.look()
    assert kind(one, shop) == "unauthorized"
    keys.remove("press")
    one.look()
    assert kind(one, keys.texts["press"]) == "unauthorized"
    # A mounted secret changes by its link.
    other = KeyFile(tmp_path / "other.yaml")
    other.add("press")
    os.unlink(link)
    link.symlink_to(other.path)
    one.look()
    assert kind(one, other.texts["press"]) == "in"


def test_a_broken_file_leaves_the_keys_as_they_were_and_says_so(keys: KeyFile) -> None:
    good = keys.path.read_bytes()
    one = door(keys)
    for content in (b"", b"keys: [", b"keys:\n- id: x\n", b"\xff\xfe", b"nothing: []", None):
        if content is None:
            keys.path.unlink()
        else:
            keys.path.write_bytes(content)
        with capture_logs() as lines:
            one.look()
            one.look()
        assert [line["event"] for line in lines] == ["keys_not_taken"]  # once
        assert one.stale
        assert kind(one, keys.texts["shop"]) == "in"
        keys.path.write_bytes(good + b"\n")
        one.look()
        assert one.stale == ""


@pytest.mark.parametrize("changed", [True, False])
def test_a_file_that_could_not_be_read_for_a_while_is_taken_once_it_can(
    keys: KeyFile, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """Nothing of the file itself tells that it can be read again."""
    shop, one = keys.texts["shop"], door(keys)
    if changed:
        keys.add("press")
        keys.remove("shop")

    def refuse(_path: Path) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with capture_logs() as lines, monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        if not changed:
            patch.setattr(Path, "stat", refuse)
        one.look()
        one.look()
    assert [line["event"] for line in lines] == ["keys_not_taken"]
    assert kind(one, shop) == "in"
    assert os.strerror(errno.EIO) in one.stale
    one.look()
    assert (kind(one, shop), one.stale) == ("unauthorized" if changed else "in", "")


async def test_a_running_api_sees_the_change_by_itself(
    keys: KeyFile, settings: Settings, asgi: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.auth.keys_file.LOOK_EVERY <= 2
    monkeypatch.setattr(api.auth.keys_file, "LOOK_EVERY", 0.01)
    async with asgi(keys.settings(settings)) as client:
        headers = keys.add("press")
        await until_status(200, client, headers)
        text = (await client.get("/metrics", headers=headers)).text
        assert "delayq_api_keys_stale 0.0" in text


# -- where it listens ------------------------------------------------------------------------------------------------------


def test_an_address_that_others_reach_takes_keys_or_the_word_that_none_are_wanted(keys: KeyFile) -> None:
    for host in ("0.0.0.0", "::", "", "10.0.0.7", "api.example.com", "127.0.0.1.example.com"):
        with pytest.raises(ConfigError, match="DELAYQ_API_KEYS") as raised:
            create_app(load_settings(api_host=host))
        assert "\n" not in str(raised.value)
        create_app(load_settings(api_host=host, api_keys=str(keys.path)))
        create_app(load_settings(api_host=host, api_open="yes-without-keys"))
    with pytest.raises(ConfigError, match="cannot read"):
        Door(load_settings(api_keys=str(keys.path.with_name("none.yaml"))))
    with pytest.raises(ConfigError, match="DELAYQ_API_OPEN"):
        load_settings(api_open="yes")
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert create_app(load_settings(api_host=host)).service.door.enter({"headers": []}, "/") is ANYBODY


# -- those who try too often -----------------------------------------------------------------------------------------------


def test_too_many_wrong_keys_lock_out_that_key_at_that_address(keys: KeyFile) -> None:
    """H1: Keys are compared in constant time.

    Other keys, and the same key elsewhere, still work. Each wrong key is a line in the log, until it is locked out.
    """
    keys.add("press")
    clock = ManualClock()
    one = door(keys, clock)
    shop, press = keys.texts["shop"], keys.texts["press"]
    with capture_logs() as lines:
        for _ in range(Attempts.MOST):
            assert kind(one, wrong(shop)) == "unauthorized"
        assert kind(one, wrong(shop)) == kind(one, shop) == "locked"
    assert len(lines) == Attempts.MOST  # no line for what is locked out
    assert [line["locked"] for line in lines] == [False] * (Attempts.MOST - 1) + [True]
    assert {line["event"] for line in lines} == {"access_refused"}
    with capture_logs() as other:
        kind(one, "dq_c0ffee00c0ff_\x1b[31mcanary\r\nX: y")
    assert {line["key"] for line in lines} == {keys.keys[0].id}
    assert other[0]["key"] == "unknown"
    assert "canary" not in str(other)
    assert shop[20:] not in str(lines)  # the log tells no key
    assert kind(one, press) == "in"
    assert kind(one, shop, "10.0.0.2") == "in"
    clock.advance(Attempts.LOCKED * 3 // 2)
    assert kind(one, shop) == "in"


def test_guesses_at_ids_lock_out_none_that_there_is(keys: KeyFile) -> None:
    one = door(keys)
    guesses = [f"dq_{n:012x}_{'A' * 43}" for n in range(50)] + ["junk"] * 5
    assert {kind(one, guess) for guess in guesses} == {"unauthorized", "locked"}
    assert kind(one, keys.texts["shop"]) == "in"
    # Addresses of one IPv6 network count as one.
    kinds = [kind(one, wrong(keys.texts["shop"]), f"2001:db8::{n}") for n in range(Attempts.MOST + 1)]
    assert kinds[-1] == "locked"
    assert kind(one, keys.texts["shop"], "2001:db8:0:1::1") == "in"


def test_what_is_remembered_of_attempts_is_bounded_and_few_of_them_lock_out_nobody() -> None:
    attempts = Attempts()
    for n in range(Attempts.REMEMBERED + 500):
        attempts.failed((f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", ""), n)
    assert len(attempts) == Attempts.REMEMBERED
    now_and_then = Attempts()
    assert not any(now_and_then.failed(("a", ""), n * Attempts.WITHIN // 5) for n in range(100))


def test_a_lock_out_lasts_as_chance_wills_between_a_half_and_one_and_a_half() -> None:
    """H1: It lasts 15 to 45 s."""
    for draw, seconds in ((0.0, 15), (0.5, 30), (1.0, 45)):
        attempts = Attempts(lambda draw=draw: draw)  # type: ignore[misc] # a lambda with a default is not inferred
        assert [attempts.failed(("a", ""), 0) for _ in range(Attempts.MOST)][-1]
        assert attempts.locked(("a", ""), 0) == seconds
        assert attempts.locked(("a", ""), seconds * 1_000) == 0


# -- rates -----------------------------------------------------------------------------------------------------------------


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    bucket = Bucket(2, 5, 0)
    for _ in range(5):
        assert bucket.wait(0) == 0
        bucket.take(1)
    assert bucket.wait(0) == 1
    assert bucket.wait(499) == 1
    assert bucket.wait(500) == 0
    bucket.take(1)
    assert bucket.wait(100) > 0  # a clock that goes back gives nothing
    assert bucket.wait(60_000) == 0
    bucket.take(20)  # a large batch goes, and is paid for later
    assert bucket.wait(60_000) == 8


def test_a_key_that_asks_too_often_is_told_when_to_come_again(keys: KeyFile) -> None:
    keys.add("busy", rate=10, burst=3)
    clock = ManualClock()
    one = door(keys, clock)
    busy = keys.texts["busy"]
    assert [kind(one, busy) for _ in range(5)] == ["in"] * 3 + ["rate"] * 2
    assert kind(one, keys.texts["shop"]) == "in"
    keys.add("press")
    one.look()
    assert kind(one, busy) == "rate"  # another key in the file changes nothing for this one
    clock.advance(100)
    assert kind(one, busy) == "in"


async def test_each_message_of_a_batch_counts(keys: KeyFile, settings: Settings, asgi: Serving) -> None:
    headers = keys.add("busy", rate=1, burst=10)
    async with asgi(keys.settings(settings)) as client:
        batch = {"messages": [{"topic": "orders", "delayTime": 60_000}] * 1_000}
        assert (await client.post("/v1/messages:batch", json=batch, headers=headers)).status_code == 200
        answer: httpx2.Response = await client.get("/v1/queues", headers=headers)
        assert assert_refused(answer, 429)["type"] == "urn:delayq:problem:rate"
        assert 900 < int(answer.headers["retry-after"]) <= 1_000
