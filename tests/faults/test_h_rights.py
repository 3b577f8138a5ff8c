"""A Redis whose users may do no more than they need: the rights that docs/operations.md lists are enough, and all used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from delayq.store.rights import CLI, CLIENT, WORKER, Needs
from tests.api.conftest import in_process
from tests.docs.blocks import blocks_of
from tests.faults.flow import delayq
from tests.support.nodes import RunningNode
from tests.support.servers import NO_REDIS, REDIS_SERVER
from tests.support.service import ROOT
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
PASSWORD = "only-for-delayq"
TOPICS = ("orders.streams", "orders.general", "own.a")
#: What operators do by the command line.
COMMANDS = (
    "schedule orders.cli x --delay 1h --id cli", "get cli", "find k", "overview", "reschedule cli --delay 2h",
    "cancel cli", "queues", "nodes", "policies put cli --match * --rate 1000 --index topic", "pause orders.*",
    "topics", "schedule orders.held x --delay 0 --id held", "deliver-now held --force", "search --topic orders.*",
    "resume orders.* --rate 100", "audit", "era show", "era bump --yes", "dead-letters list", "doctor",
    "reshard --queues 4",
)  # fmt: skip
#: What that user may not do.
FORBIDDEN: tuple[tuple[Any, ...], ...] = (
    ("FLUSHALL",), ("FLUSHDB",), ("CONFIG", "SET", "appendonly", "no"), ("CONFIG", "GET", "*"),
    ("DEBUG", "SLEEP", 0), ("KEYS", "*"), ("SHUTDOWN",), ("ACL", "LIST"), ("SAVE",), ("SCRIPT", "FLUSH"),
    ("GET", "other"), ("HGET", "other", "x"), ("DEL", "other"), ("DEL", "delayq:{0}:pool"), ("UNLINK", "delayq:{0}:pool"),
    ("RENAME", "delayq:{0}:pool", "a"), ("REPLICAOF", "NO", "ONE"), ("MONITOR",),
    ("CLIENT", "LIST"), ("EVAL", "return redis.call('DEL', KEYS[1])", 1, "other"),
    ("EVAL", "return redis.call('FLUSHALL')", 0), ("PUBLISH", "other", "x"), ("FUNCTION", "FLUSH"), ("SCAN", 0),
    ("MIGRATE", "h", 1, "other", 0, 1), ("SWAPDB", 0, 1),
)  # fmt: skip


def rights() -> list[str]:
    """The words behind 'ACL SETUSER delayq' in the documentation."""
    page = ROOT / "docs" / "operations.md"
    (block,) = (block for block in blocks_of(page) if block.text.startswith("ACL SETUSER delayq"))
    return block.text.replace("secret", PASSWORD).split()[3:]


def known_to(admin: Any, words: list[str]) -> list[str]:
    """Those of the words that a server knows."""
    if admin.info("server")["redis_version"] < "7.2":
        return [word for word in words if word not in ("+waitaof", "+client|setinfo")]
    return words


@pytest.fixture(params=["valkey", "redis7"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """The administrator of a server, and the URL for delayq; nobody else gets in."""
    options: dict[str, Any] = {}
    if request.param == "redis7":
        if REDIS_SERVER is None:
            pytest.skip(NO_REDIS)
        options["binary"] = Path(REDIS_SERVER)
    with EmbeddedServer(data_dir=tmp_path / "redis", **options) as server:
        admin: Any = redis.Redis.from_url(server.url, protocol=2)
        admin.execute_command("ACL", "SETUSER", "delayq", *known_to(admin, rights()))
        admin.execute_command("ACL", "SETUSER", "admin", "on", ">admin", "allkeys", "allchannels", "+@all")
        boss: Any = redis.Redis.from_url(server.url.replace("redis://", "redis://admin:admin@"), protocol=2)
        admin.execute_command("ACL", "SETUSER", "default", "off")
        boss.execute_command("ACL", "LOG", "RESET")
        yield boss, server.url.replace("redis://", f"redis://delayq:{PASSWORD}@")
        boss.execute_command("ACL", "SETUSER", "default", "on")
        admin.close()
        boss.close()


def user_for(admin: Any, url: str, name: str, needs: Needs) -> str:
    """The URL of a user who has the rights of one kind of process, and no others."""
    streams, channels = "~orders.*", "&delayq:*"
    words = known_to(admin, [f"+{one}" for one in (*needs.commands, "ping", "client|setinfo", "bgrewriteaof")])
    admin.execute_command(
        "ACL", "SETUSER", name, "on", f">{PASSWORD}", "~delayq:*", streams, "resetchannels", channels, "-@all", *words
    )
    return url.replace("//delayq:", f"//{name}:")


def denied(admin: Any) -> list[tuple[bytes, bytes]]:
    """What the server refused: why, and what."""
    found = []
    for entry in admin.execute_command("ACL", "LOG"):
        fields = dict(zip(entry[::2], entry[1::2], strict=True))
        found.append((fields[b"reason"], fields[b"object"]))
    return found


def arrived(admin: Any) -> Counter[str]:
    """How many entries the streams of each topic have."""
    found = Counter[str]()
    for topic in TOPICS:
        for key in admin.scan_iter(f"*{topic}*", _type="stream"):
            found[topic] += admin.xlen(key)
    return found


async def test_h11_a_user_with_the_least_rights_is_enough_for_everything(
    guarded: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an API, a node and the command line in this process, each of which logs in as a user of its own."""
    admin, url = guarded
    urls = [user_for(admin, url, *one) for one in (("api", CLIENT), ("worker", WORKER), ("cli", CLI))]
    routes = (
        '[{"name": "general", "match": "orders.general", "path": "general"},'
        ' {"name": "own", "match": "own.*", "perQueue": true}, {"name": "rest"}]'
    )
    monkeypatch.setenv("DELAYQ_ROUTES", routes)
    settings = load_settings(redis_url=urls[0], redis_timeout=REDIS_TIMEOUT, node="n")
    with RunningNode(load_settings(redis_url=urls[1], redis_timeout=REDIS_TIMEOUT, node="n")):
        async with in_process(settings) as api:
            messages = [
                {"id": f"{topic}-{n}", "topic": topic, "delayTime": 10, "keys": ["k"], "orderingKey": "o" * (n % 2)}
                for topic in TOPICS
                for n in range(20)
            ]
            results = (await api.post("/v1/messages:batch", json={"messages": messages})).json()["results"]
            assert {one["status"] for one in results} == {201}
            later = {"topic": "orders.later", "id": "later", "delayTime": 3_600_000, "keys": ["later"]}
            assert (await api.post("/v1/messages", json=later)).status_code == 201
            assert (await api.get("/v1/messages?key=later")).json()["messages"][0]["id"] == "later"
            assert (await api.patch("/v1/messages/later", json={"delayTime": 7_200_000})).status_code == 200
            eventually(
                lambda: arrived(admin) == {"orders.streams": 20, "orders.general": 20, "own.a": 20}, "all arrive"
            )
            assert (await api.delete("/v1/messages/later")).json()["result"] == "cancelled"
            for command in COMMANDS:
                status, text = delayq(urls[2], *command.split())
                assert status in (0, 1), (command, text)
                assert "NOPERM" not in text
            assert "requires a password" in delayq(urls[2], "doctor")[1]
            assert "this user is missing +subscribe (worker)" in delayq(urls[2], "doctor")[1]
            assert (
                await api.post("/v1/messages", json={"topic": "orders.streams", "delayTime": 10})
            ).status_code == 201
            eventually(lambda: arrived(admin)["orders.streams"] == 21, "it arrives")
    # Doctor asks for appendfsync, and does without; its knock without a password is the other thing refused.
    assert {(why, what) for why, what in denied(admin) if why != b"auth"} <= {(b"command", b"config|get")}


def test_h11_that_user_can_harm_nothing_else(guarded: tuple[Any, str]) -> None:
    """A16 (FLUSHALL or DEL by an operator): The documented user may not.

    The accounts raise an alarm within 35 s; `/readyz` is 503.
    """
    admin, url = guarded
    admin.set("other", "1")
    user: Any = redis.Redis.from_url(url, protocol=2)
    for words in FORBIDDEN:
        with pytest.raises(
            redis.exceptions.ResponseError, match=r"(?i)noperm|permission|ACL failure|not allowed|can't run"
        ):
            user.execute_command(*words)
    user.close()
    assert admin.get("other") == b"1"


#: Rights that a living service loses and gets back, and whether a message is accepted meanwhile.
LOST = (
    ("-zadd", "+zadd", False),
    ("-hdel", "+hdel", True),
    ("-evalsha -eval", "+eval", False),
    ("resetchannels", "&delayq:*", True),
    ("-xadd", "+xadd", True),
    ("resetkeys ~orders.*", "~delayq:*", False),
)


async def test_h11_a_right_that_is_taken_away_is_named_and_nothing_is_lost_and_no_restart_is_needed(
    guarded: tuple[Any, str],
) -> None:
    """H11: A missing right is named at the start.

    A right that is removed later makes `/readyz` answer 503 with its name. Scripts change nothing without it, no
    message is lost or sent twice, and no restart is needed once it is back.
    """
    admin, url = guarded
    settings = load_settings(redis_url=url, redis_timeout=REDIS_TIMEOUT, node="n")
    with RunningNode(settings) as running:
        async with in_process(settings) as api:

            async def schedule(id: str) -> int:
                body = {"topic": TOPICS[0], "id": id, "delayTime": 50, "keys": ["k"]}
                return (await api.post("/v1/messages", json=body)).status_code

            for place, (taken, named, accepted) in enumerate(LOST):
                assert await schedule(f"{place}-before") == 201
                admin.execute_command("ACL", "SETUSER", "delayq", *taken.split())
                assert f"is missing {named}" in str((await api.get("/readyz")).json())
                eventually(lambda: any(named in text for text in running.node.complaints()), "the worker names it")  # noqa: B023
                assert await schedule(f"{place}-while") == (201 if accepted else 503)
                admin.execute_command("ACL", "SETUSER", "delayq", *known_to(admin, rights()))
                assert await schedule(f"{place}-while") in (200, 201)
                assert (await api.get("/readyz")).status_code == 200
                eventually(lambda: running.node.complaints() == [], "the worker is ready again")
                wanted = 2 * (place + 1)
                eventually(lambda: arrived(admin)[TOPICS[0]] >= wanted, "all arrive")  # noqa: B023
    ids = sorted(fields[b"id"].decode() for _, fields in admin.xrange(TOPICS[0]))
    assert ids == sorted(f"{place}-{when}" for place in range(len(LOST)) for when in ("before", "while"))
