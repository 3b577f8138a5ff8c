"""Those who may not: whoever reaches Redis or ZooKeeper, pages of other sites."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
import redis

from delayq.client.findings import Check
from delayq.config import Settings, load_settings
from delayq.doctor.access import check_password, check_zookeeper
from delayq.store.connect.store import Store
from tests.api.conftest import in_process
from tests.support.servers import ServerUnderTest

JSON = {"content-type": "application/json"}
MESSAGE = {"topic": "orders", "delayTime": 60_000}


def test_h11_doctor_complains_of_a_redis_that_lets_in_anybody(valkey: ServerUnderTest) -> None:
    """H11 (Redis or ZK reachable without auth): `delayq doctor` warns. delayq works with the least rights; a missing
    one is named, and nothing is lost.

    What a user with the least rights may do: test_h_rights.py.
    """
    everywhere = valkey.url.replace("127.0.0.1", "0.0.0.0")  # not loopback by its name
    for url, result, words in ((everywhere, "warn", "requires no password"), (valkey.url, "ok", "loopback")):
        check = said_of(url)
        assert (check.result, words in check.text) == (result, True)
    valkey.admin.execute_command("ACL", "SETUSER", "other", "on", ">pass", "allkeys", "+@all")
    valkey.admin.execute_command("ACL", "SETUSER", "default", ">pass", "resetpass")
    try:
        assert said_of(everywhere.replace("redis://", "redis://other:pass@")).result == "ok"
    finally:
        restore = redis.Redis.from_url(valkey.url.replace("redis://", "redis://other:pass@"))
        restore.execute_command("ACL", "SETUSER", "default", "nopass")
        restore.execute_command("ACL", "DELUSER", "other")
        restore.close()


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"zookeeper": "127.0.0.1:2181,zk.example:2181"}, ["warn"]),
        ({"zookeeper": "127.0.0.1:2181,localhost:2182"}, ["ok"]),
        ({"zookeeper": "zk.example:2181", "zookeeper_user": "delayq", "zookeeper_password": "x"}, ["ok"]),
        ({}, []),
    ],
)
def test_h11_doctor_complains_of_a_zookeeper_that_lets_in_anybody(given: dict[str, str], result: list[str]) -> None:
    """H11: It also warns of a ZooKeeper that needs no user, unless it is reached by loopback.

    ZooKeeper holds who owns which queue, and no messages. A worker logs in and makes everything there its user's own
    (`tests/coordinator`).
    """
    assert [check.result for check in check_zookeeper(load_settings(**given))] == result


def said_of(url: str) -> Check:
    store = Store(url)
    try:
        return check_password(store)
    finally:
        store.close()


async def test_h14_pages_of_other_sites_get_nothing_done_and_no_answer_is_a_page(settings: Settings) -> None:
    """H14 (admin UI CSRF, XSS by a body preview): Other sites can neither change anything nor use the session.

    Pages run their own scripts only.

    H14: Changes take JSON or a method that another site's page has to ask for first, and no answer permits that.
    Answers are data (`nosniff`, never framed).

    What a page of another site can send without asking first is a form or plain text, and no answer allows more.
    """
    async with in_process(settings) as api:
        text = '{"topic":"orders","delayTime":60000}'
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = await api.post("/v1/messages", content=text, headers={"content-type": kind})
            assert answer.status_code == 415
        asks = {"origin": "https://example.com", "access-control-request-method": "DELETE"}
        for answer in (
            await api.request("OPTIONS", "/v1/messages", headers=asks),
            await api.post("/v1/messages", content=text, headers=JSON | {"origin": "https://example.com"}),
        ):
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        script = "<script>alert(1)</script>"
        hostile = {"topic": "orders", "delayTime": 60_000, "body": script, "properties": {"a": script}, "id": "x"}
        await api.post("/v1/messages", json=hostile)
        for path in ("/v1/messages/x", "/v1/messages/%3Cscript%3E", "/%3Cscript%3Ealert(1)%3C/script%3E", "/livez"):
            answer = await api.get(path)
            assert "json" in answer.headers["content-type"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "no-referrer"


async def test_h14_the_page_of_the_documentation_runs_its_own_script_and_no_other(settings: Settings) -> None:
    async with in_process(settings) as api:
        page = await api.get("/docs")
        policy = page.headers["content-security-policy"]
        scripts = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
        assert len(scripts) == 1
        for script in scripts:
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy
        assert "//" not in page.text  # no other host is named
        assert "http" not in policy
        for source in re.findall(r'<(?:script|link) [^>]*(?:src|href)="(docs/[^"]+)"', page.text):
            there = await api.get(f"/{source}")
            assert there.status_code == 200
            assert there.headers["content-type"].partition(";")[0] in ("text/javascript", "text/css")
            assert len(there.content) > 100_000
        directives = dict(one.strip().split(" ", 1) for one in policy.split(";"))
        assert directives["default-src"] == directives["frame-ancestors"] == directives["base-uri"] == "'none'"
        assert "unsafe" not in policy
        assert directives["connect-src"] == "'self'"
