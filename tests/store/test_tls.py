"""A Redis that is reached by TLS alone, and wants a certificate, a user and a password."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from delayq import AsyncClient, Client, Message
from delayq.base.errors import StoreError, StoreUnavailable
from delayq.config import Settings, load_settings
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.process import stand_still
from tests.support.certificates import Authority
from tests.support.servers import NO_REDIS, REDIS_SERVER, ServerUnderTest
from tests.support.service import Service
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

PASSWORD = "canary@redis/1 :%"


class Guarded(NamedTuple):
    """The server by its plain port, its URL by TLS, what goes with that, an authority that is not its own, its process."""

    server: ServerUnderTest
    place: str
    files: str
    stranger: Path
    pid: int


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if REDIS_SERVER is None:
        pytest.skip(NO_REDIS)
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(folder / "own"), Authority(folder / "else")
    shown, worker = authority.issue("redis"), authority.issue("worker")
    port = free_port()
    tls = {
        "port": str(port), "cert-file": str(shown.certificate), "key-file": str(shown.key),
        "ca-cert-file": str(authority.file), "auth-clients": "yes",
    }  # fmt: skip
    extra = [word for name, value in tls.items() for word in (f"--tls-{name}", value)]
    with EmbeddedServer(binary=Path(REDIS_SERVER), extra=extra) as running:
        server = ServerUnderTest("redis7", running.url)
        server.admin.execute_command("ACL", "SETUSER", "delayq", "on", f">{PASSWORD}", "allkeys", "&delayq:*", "+@all")
        files = f"ssl_ca_certs={authority.file}&ssl_certfile={worker.certificate}&ssl_keyfile={worker.key}"
        assert running.pid is not None  # 0 would stop the tests themselves
        yield Guarded(server, f"rediss://{LOCALHOST}:{port}/0", files, stranger.file, running.pid)
        server.close()


def settings_of(guarded: Guarded, **given: Any) -> Settings:
    url = f"{guarded.place}?{guarded.files}"
    own: dict[str, Any] = {
        "redis_url": url,
        "redis_user": "delayq",
        "redis_password": PASSWORD,
        "redis_timeout": REDIS_TIMEOUT,
    }
    return load_settings(**(own | given))


@pytest.mark.long
def test_api_and_worker_work_by_tls_with_the_password_in_a_file_and_their_wakes_too(
    guarded: Guarded, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "url").write_text(f"{guarded.place}?{guarded.files}\n")
    service = Service(
        tmp_path,
        f"file:{tmp_path}/url",
        workers=1,
        queues="2",
        log_level="debug",
        redis_user="delayq",
        redis_password=f"file:{tmp_path}/password",
    )
    before = {one["id"] for one in guarded.server.admin.client_list()}  # of the tests before, which may end later
    with service:
        assert service.schedule("later", id="later", delayTime=3_600_000).status_code == 201
        # The worker, which sleeps until then, has to be woken by what the script publishes. It owns the queues before
        # the thread of its wakes has a connection by TLS.
        wakes = ("delayq:{0}:wake", "delayq:{1}:wake")
        admin = guarded.server.admin
        eventually(lambda: {count for _, count in admin.pubsub_numsub(*wakes)} == {1}, "both are listened to")
        for number in range(8):
            assert service.schedule("now", id=f"now-{number}", delayTime=20).status_code == 201
        eventually(lambda: guarded.server.admin.xlen("now") == 8, "all came")
        assert service.http.delete("/v1/messages/later").json()["result"] == "cancelled"
        port = guarded.place.rpartition(":")[2].partition("/")[0]  # the service connects over TLS, the test does not
        users = {
            one["user"] for one in admin.client_list() if one["id"] not in before and one["laddr"].endswith(f":{port}")
        }
        assert users == {"delayq"}
    for one in service.processes:
        assert one.said() and "canary" not in one.said()


async def test_a_certificate_that_is_not_trusted_is_told_in_one_sentence(guarded: Guarded) -> None:
    settings = settings_of(guarded, redis_url=f"{guarded.place}?ssl_ca_certs={guarded.stranger}")
    async with AsyncClient(settings=settings) as client:
        with pytest.raises(StoreUnavailable) as by_asyncio:
            await client.schedule(Message(topic="t", delay_time=1))
    with Client(settings=settings) as other, pytest.raises(StoreUnavailable) as caught:
        other.schedule(Message(topic="t", delay_time=1))
    for error in (by_asyncio.value, caught.value):
        assert str(error).startswith("the certificate of Redis is not trusted: ")
        assert str(error).endswith("; name the trusted authority with ?ssl_ca_certs=… in DELAYQ_REDIS_URL")
        assert "canary" not in repr(error)


async def _used_and_closed(guarded: Guarded) -> None:
    async with AsyncClient(settings=settings_of(guarded)) as client:
        await client.find("nobody")
        stand_still(guarded.pid)


def test_a_client_of_an_event_loop_that_ends_leaves_no_socket_open(guarded: Guarded) -> None:
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            asyncio.run(_used_and_closed(guarded))
            gc.collect()
        assert [str(one.message) for one in told] == []
    finally:
        os.kill(guarded.pid, signal.SIGCONT)


def test_a_certificate_for_another_host_no_certificate_or_a_wrong_password_lets_nobody_in(guarded: Guarded) -> None:
    trusting = guarded.files.partition("&")[0]
    elsewhere = settings_of(guarded).redis_url.replace(f"@{LOCALHOST}", "@127.0.0.2")
    guarded.server.admin.config_set("bind", "127.0.0.1 127.0.0.2")
    for url, given, expected in (
        (elsewhere, {}, "not valid for"),
        (None, {"redis_url": f"{guarded.place}?{trusting}"}, "Redis is unreachable, or its reply was lost"),
        (None, {"redis_password": "canary-wrong"}, "Redis refused the credentials"),
    ):
        with Client(url, settings=settings_of(guarded, **given)) as client, pytest.raises(StoreError) as caught:
            client.schedule(Message(topic="t", delay_time=1))
        assert expected in str(caught.value)
        assert "canary" not in str(caught.value)
