"""Sessions of the console: a cookie that stands for a key, for pages of the API's own origin, as long as the key does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from api.auth.caller import ANYBODY
from api.auth.keys_file import Door, names_loopback
from api.auth.rates import Attempts
from api.auth.sessions import LASTS
from api.wire.problems import Problem
from delayq.config import Settings, load_settings
from delayq.domain.api_keys import Scope
from delayq.testing import ManualClock
from tests.api.conftest import Serving, assert_refused
from tests.support.keys import KeyFile

ENDED = "unauthorized: There is no valid session: its key was changed or revoked. Log in again."
OWN = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    file = KeyFile(tmp_path / "keys.yaml")
    file.add("shop", {"orders": ["schedule", "read"], "bills": ["cancel"]})
    file.add("press")
    return file


def door(keys: KeyFile, clock: ManualClock, **settings: Any) -> Door:
    return Door(load_settings(api_keys=str(keys.path), **settings), clock)


def scope(cookie: str, site: str = "same-origin", method: str = "GET") -> dict[str, Any]:
    headers = [(b"cookie", f"theme=dark; {cookie}".encode()), (b"sec-fetch-site", site.encode())]
    return {"method": method, "headers": headers, "client": ("10.0.0.1", 1)}


def begin(one: Door, text: str) -> str:
    """A new session, as a browser sends it."""
    name, value = one.begin_session(text, {"client": ("10.0.0.1", 1)}, "/console/session")
    return f"{name.decode()}={value.decode()}"


def said(one: Door, scope: dict[str, Any]) -> str:
    """How it ends for who comes so."""
    try:
        one.enter(scope, "/v1/queues")
    except Problem as problem:
        return f"{problem.kind}: {problem}"
    return "in"


def test_a_session_stands_for_its_key_in_every_process_that_has_it_until_its_time(keys: KeyFile) -> None:
    clock = ManualClock()
    one, other = door(keys, clock), door(keys, clock)
    cookie = begin(one, keys.texts["shop"])
    for each in (one, other):
        caller = each.enter(scope(cookie), "/v1/queues")
        assert (caller.key, caller.session) == (keys.keys[0], True)
    elsewhere = door(keys, clock, redis_url="redis://elsewhere:6379")
    assert said(elsewhere, scope(cookie)) == ENDED
    assert said(door(keys, clock, console="no"), scope(cookie)).startswith("unauthorized")
    clock.advance(LASTS - 1)
    assert said(one, scope(cookie)) == "in"
    clock.advance(1)
    assert said(one, scope(cookie)) == "unauthorized: This session has expired. Log in again."


def test_a_session_ends_with_its_key_and_no_other_does(keys: KeyFile) -> None:
    clock = ManualClock()
    one = door(keys, clock)
    cookies = {name: begin(one, text) for name, text in keys.texts.items()}
    keys.add("more")
    one.look()
    assert {said(one, scope(cookie)) for cookie in cookies.values()} == {"in"}
    keys.remove("shop")
    one.look()
    assert said(one, scope(cookies["shop"])) == ENDED
    assert said(one, scope(cookies["press"])) == "in"


def test_a_request_that_waits_has_the_present_permissions_of_its_key(keys: KeyFile) -> None:
    one = door(keys, ManualClock())
    by_session = one.enter(scope(begin(one, keys.texts["shop"])), "/v1/queues")
    header = [(b"authorization", f"Bearer {keys.texts['shop']}".encode())]
    by_key = one.enter({"method": "GET", "headers": header, "client": ("10.0.0.1", 1)}, "/v1/queues")
    assert one.renewed(ANYBODY) is ANYBODY
    (shop, press) = keys.keys
    given: list[tuple[list[Scope], bool]] = [
        (["read", "receive"], True),
        (["read"], True),
        (["read", "receive"], False),
    ]
    for scopes, console in given:
        keys.keys = [replace(shop, scopes={"orders": scopes}, console=console), press]
        keys.add("more")  # writes the file
        one.look()
        assert one.renewed(by_key).on("orders") == set(scopes)
        if console:
            assert one.renewed(by_session).session
            assert one.renewed(by_session).on("orders") == set(scopes)
        else:
            with pytest.raises(Problem, match="revoked"):
                one.renewed(by_session)
    for changed in ([press], [replace(shop, hash="sha256:" + "0" * 64), press]):
        keys.keys = changed
        keys.add("more")
        one.look()
        for caller in (by_key, by_session):
            with pytest.raises(Problem, match="Unknown or revoked API key"):
                one.renewed(caller)


def test_a_session_counts_for_the_own_page_alone(keys: KeyFile) -> None:
    """H14: The one cookie, of a console session, is sent by no other site's page (`SameSite=Strict`) and read by no
    script.

    It counts only for requests of the API's own origin (`Sec-Fetch-Site`).
    """
    one = door(keys, ManualClock())
    cookie = begin(one, keys.texts["shop"])
    for site in ("same-site", "cross-site", "none", ""):
        told = said(one, scope(cookie, site))
        assert told.startswith("unauthorized: A session is accepted only for requests of the console's own page"), site


def test_a_cookie_that_was_tampered_with_is_none(keys: KeyFile) -> None:
    clock = ManualClock()
    one = door(keys, clock)
    name, until, mark = re.split(r"[=.]", begin(one, keys.texts["shop"]))
    press = begin(one, keys.texts["press"]).split("=")[0]
    later = str(int(until) + 1)
    other = mark[:-2] + ("AA" if mark[-2:] != "AA" else "BB")
    for wrong in (
        name, f"{name}=", f"{name}=.", f"{name}={until}", f"{name}={until}.", f"{name}={later}.{mark}", f"{name}={until}.{other}",
        f"{press}={until}.{mark}", f"{name}={until}.{mark}.", f"{name}={until}.{mark}ä", f"dq_console_={until}.{mark}",
    ):  # fmt: skip
        assert said(one, scope(wrong)) == ENDED, wrong
    assert not len(one.attempts)  # one that ended is no attempt


def test_a_key_in_a_header_counts_more_and_a_password_for_a_proxy_does_not(keys: KeyFile) -> None:
    """nginx passes on what its auth_basic has asked for."""
    one = door(keys, ManualClock())
    cookie = begin(one, keys.texts["shop"])

    def both(given: bytes) -> dict[str, Any]:
        asked = scope(cookie)
        return {**asked, "headers": [*asked["headers"], (b"authorization", given)]}

    for given in (b"Basic c2hvcDpwYXNz", b"", b"Negotiate YII=", b"dq_1234"):
        for _ in range(Attempts.MOST + 1):
            assert said(one, both(given)) == "in"
            assert said(one, {**both(given), "headers": both(given)["headers"][2:]}).startswith(
                "unauthorized: The request has no key"
            )
        assert not len(one.attempts)
    assert said(one, both(b"Bearer wrong")).startswith("unauthorized: Unknown or revoked API key")


def test_installations_on_other_ports_of_a_host_leave_each_other_s_sessions_alone(
    keys: KeyFile, tmp_path: Path
) -> None:
    """Browsers know no ports in cookies: two tunnels to 127.0.0.1 get what either has set."""
    there = KeyFile(tmp_path / "there.yaml")
    there.add("shop")
    for redis_url in ("redis://localhost:6379", "redis://localhost:6380"):
        clock = ManualClock()
        one, other = door(keys, clock), door(there, clock, redis_url=redis_url)
        cookies = [begin(one, keys.texts["shop"]), begin(other, there.texts["shop"])]
        names = [cookie.split("=")[0] for cookie in cookies]
        assert len(set(names)) == 2
        for both in ("; ".join(cookies), "; ".join(reversed(cookies))):
            for each, key in ((one, keys.keys[0]), (other, there.keys[0])):
                assert each.enter(scope(both), "/v1/queues").key == key
        assert [cookie.name.decode() for cookie in one.sessions_begun(scope("; ".join(cookies)))] == names[:1]


def test_a_session_shares_the_lock_out_and_the_rate_of_its_key_in_headers(keys: KeyFile) -> None:
    keys.add("slow", rate=1, burst=3)
    one = door(keys, ManualClock())

    def in_header(name: str) -> str:
        given = [(b"authorization", f"Bearer {keys.texts[name]}".encode())]
        return said(one, {"headers": given, "client": ("10.0.0.1", 1)})

    cookie = begin(one, keys.texts["slow"])
    assert [said(one, scope(cookie)).partition(":")[0] for _ in range(3)] == ["in", "in", "rate"]
    assert in_header("slow").startswith("rate")
    text = keys.texts["shop"]
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    for _ in range(Attempts.MOST):
        with pytest.raises(Problem, match="Unknown or revoked API key"):
            begin(one, wrong)
    with pytest.raises(Problem, match="Too many attempts"):
        begin(one, text)
    assert in_header("shop").startswith("locked")


def test_keys_that_are_not_for_the_console_get_no_session(keys: KeyFile) -> None:
    keys.add("machine", console=False)
    keys.add("blind", {"*": ["schedule", "cancel", "admin"]})
    one = door(keys, ManualClock())
    with pytest.raises(Problem, match="not for the console"):
        begin(one, keys.texts["machine"])
    with pytest.raises(Problem, match="cannot read any topic"):
        begin(one, keys.texts["blind"])


def test_a_read_only_console_lets_sessions_look_and_keys_do(keys: KeyFile) -> None:
    one = door(keys, ManualClock(), console="readOnly")
    cookie = begin(one, keys.texts["shop"])
    caller = one.enter(scope(cookie), "/v1/messages")
    assert caller.key is not None
    assert caller.key.scopes == {"orders": ["read"]}
    assert said(one, scope(cookie, method="POST")).startswith("forbidden: The console is read-only")
    script = {"method": "POST", "headers": [(b"authorization", f"Bearer {keys.texts['shop']}".encode())]}
    assert said(one, script) == "in"
    assert said(one, script | {"headers": [*script["headers"], (b"sec-fetch-site", b"same-origin")]}).startswith(
        "forbidden"
    )


# -- where there are no keys -----------------------------------------------------------------------------------------------


async def test_a_page_of_elsewhere_cannot_come_in_by_a_name_that_leads_here(
    api: httpx2.AsyncClient, settings: Settings, keys: KeyFile, asgi: Serving
) -> None:
    """H17 (DNS rebinding: a foreign page under a name that leads here): An API without keys answers 421 to names
    other than loopback's.

    H17: The API is on loopback and answers 421 on every path. An API with keys needs no such check, as the page has
    no key.
    """
    async with asgi(settings.replace(api_open="yes-without-keys")) as wide, asgi(keys.settings(settings)) as guarded:
        for host in (
            "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "[::2]",
            "127.0.0.1@evil", "localhost:8080:8080", "\xff",
        ):  # fmt: skip
            given = [(b"host", host.encode("latin-1"))]
            for path in ("/v1/me", "/console/", "/readyz", "/metrics"):
                problem = assert_refused(await api.get(path, headers=given), 421)
                assert "DELAYQ_API_KEYS" in problem["detail"]
            assert (await wide.get("/v1/me", headers=given)).status_code == 200
            with_key = [*given, (b"authorization", f"Bearer {keys.texts['shop']}".encode())]
            assert (await guarded.get("/v1/me", headers=with_key)).status_code == 200


def test_loopback_has_names_which_are_remembered_and_not_without_bound() -> None:
    for host in ("localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:8080", "127.8.8.8", "[::1]", "[::1]:8080"):
        assert names_loopback(host.encode()), host
    one = Door(load_settings(), ManualClock())
    for port in range(5_000):
        one.guest({"headers": [(b"host", b"localhost:%d" % port)]})
    assert one._names is not None
    assert 0 < len(one._names) <= 1_000


async def test_a_read_only_console_changes_nothing(settings: Settings, keys: KeyFile, asgi: Serving) -> None:
    """Over plain HTTP browsers say nothing of sites, and name their own origin with all that may change something."""
    message = {"topic": "orders", "delayTime": 1_000}
    calls: tuple[tuple[str, str, Any], ...] = (
        ("POST", "/v1/messages", message),
        ("POST", "/v1/messages:cancel", {"ids": ["a"]}),
        ("PATCH", "/v1/messages/a", {"delayTime": 1}),
        ("PUT", "/v1/policies/p", {"match": "orders"}),
        ("DELETE", "/v1/messages/a", None),
    )
    for one in (settings.replace(api_open="yes-without-keys"), keys.settings(settings)):
        async with asgi(one.replace(console="readOnly")) as api:
            api.headers["authorization"] = f"Bearer {keys.texts['shop']}"
            for page in (OWN, {"origin": "http://delayq.internal:8080"}, {"origin": "null"}):
                headers = page | {"host": "delayq.internal:8080"}
                for method, path, body in calls:
                    problem = assert_refused(await api.request(method, path, json=body, headers=headers), 403)
                    assert "read-only" in problem["detail"]
                assert (await api.get("/v1/me", headers=headers)).json()["console"] == "readOnly"
            assert (await api.post("/v1/messages", json=message)).status_code == 201


# -- over HTTP -------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def guarded(settings: Settings, keys: KeyFile, asgi: Serving) -> AsyncIterator[httpx2.AsyncClient]:
    """An API with keys, with what a browser's page of its own sends."""
    async with asgi(keys.settings(settings)) as api:
        api.headers.update(OWN)
        yield api


async def test_who_logs_in_needs_the_key_no_more(guarded: httpx2.AsyncClient, keys: KeyFile) -> None:
    assert_refused(await guarded.get("/v1/me"), 401)
    answer = await guarded.post("/console/session", json={"key": f" {keys.texts['shop']} ", "path": "/"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-length" not in answer.headers
    kept = answer.headers["set-cookie"]
    assert keys.texts["shop"] not in kept
    assert kept.split("; ")[1:] == ["Path=/", f"Max-Age={12 * 3600}", "HttpOnly", "SameSite=Strict"]
    mine = (await guarded.get("/v1/me")).json()
    assert (mine["name"], mine["session"]) == ("shop", True)
    assert (await guarded.post("/v1/messages", json={"topic": "orders", "delayTime": 1_000})).status_code == 201
    assert_refused(await guarded.get("/v1/me", headers={"sec-fetch-site": "cross-site"}), 401)
    # A browser has one session here, and those of elsewhere stay.
    guarded.cookies.set("dq_console_0123456789ab", "elsewhere")
    for name in ("press", "shop", "shop"):
        await guarded.post("/console/session", json={"key": keys.texts[name], "path": "/"})
        assert ((await guarded.get("/v1/me")).json()["name"], len(guarded.cookies)) == (name, 2)
    gone = await guarded.delete("/console/session", params={"path": "/"})
    assert dict(guarded.cookies) == {"dq_console_0123456789ab": "elsewhere"}
    assert (gone.status_code, "Max-Age=0" in gone.headers["set-cookie"]) == (204, True)
    assert_refused(await guarded.get("/v1/me"), 401)


async def test_a_session_goes_by_tls_or_stays_on_this_machine(guarded: httpx2.AsyncClient, keys: KeyFile) -> None:
    local = {"host": "127.0.0.1:8080"}
    for headers, secure in (
        ({"host": "delayq.example.com"}, True),
        (local, False),
        (local | {"origin": "http://localhost:8080"}, False),
        (local | {"origin": "https://delayq.example.com"}, True),
    ):
        given = {"key": keys.texts["shop"], "path": "/ops/delayq/"}
        begun = await guarded.post("/console/session", json=given, headers=headers)
        kept = {"cookie": begun.headers["set-cookie"].split(";")[0]}
        ended = await guarded.delete("/console/session", params={"path": "/ops/delayq/"}, headers=headers | kept)
        for answer in (begun, ended):
            assert ("; Secure" in answer.headers["set-cookie"]) is secure
            assert "; Path=/ops/delayq/; " in answer.headers["set-cookie"]


async def test_a_path_is_one_that_a_cookie_may_have(guarded: httpx2.AsyncClient, keys: KeyFile) -> None:
    for path in (
        "", "ops/", "/ops", "/a;b/", "/a b/", "/a\r\nx: y/", "/../", "/a/..", "/ä/", "/" + "a" * 199 + "/", "/\x7f/"
    ):  # fmt: skip
        for answer in (
            await guarded.post("/console/session", json={"key": keys.texts["shop"], "path": path}),
            await guarded.delete("/console/session", params={"path": path}),
        ):
            assert assert_refused(answer, 400)["field"] == "path"
            assert "set-cookie" not in answer.headers


async def test_only_the_own_page_begins_a_session_and_only_with_a_key(
    guarded: httpx2.AsyncClient, keys: KeyFile
) -> None:
    given = {"key": keys.texts["shop"], "path": "/"}
    for site in ("cross-site", "same-site", "none"):
        headers = {"sec-fetch-site": site}
        assert_refused(await guarded.post("/console/session", json=given, headers=headers), 403)
        assert_refused(await guarded.delete("/console/session", params={"path": "/"}, headers=headers), 403)
    form = {**OWN, "content-type": "text/plain"}
    assert_refused(await guarded.post("/console/session", content=b"{}", headers=form), 415)
    for key in ("", "ä", "dq_abcd_" + "A" * 43, "x" * 3_000):
        assert_refused(await guarded.post("/console/session", json={"key": key, "path": "/"}), 401)
    assert_refused(await guarded.post("/console/session", json={"path": "/"}), 400)
    assert_refused(await guarded.post("/console/session", json={"key": "x" * 9_000, "path": "/"}), 413)


async def test_without_keys_or_without_a_console_nobody_logs_in(
    api: httpx2.AsyncClient, settings: Settings, keys: KeyFile, asgi: Serving
) -> None:
    problem = assert_refused(await api.post("/console/session", json={"key": "x", "path": "/"}))
    assert "needs no keys" in problem["detail"]
    async with asgi(keys.settings(settings).replace(console="no")) as closed:
        assert_refused(await closed.post("/console/session", json={"key": keys.texts["shop"], "path": "/"}), 404)
