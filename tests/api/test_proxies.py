"""Whose address a request has: behind trusted proxies that of the caller, and nothing that the caller invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from api.auth.proxies import TrustedProxies
from delayq import ConfigError
from delayq.config import Settings, load_settings
from tests.api.conftest import Serving
from tests.support.keys import KeyFile

TRUSTED = "10.0.0.0/8, 2001:db8:7::/48 192.168.1.7"
INGRESS = "10.0.0.1"


def caller(*lines: str, peer: str = INGRESS, trusted: str = TRUSTED) -> str:
    headers = [(b"host", b"x"), *((b"x-forwarded-for", line.encode("latin-1")) for line in lines)]
    found = TrustedProxies(trusted).caller({"client": (peer, 4711), "headers": headers})
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        ((), INGRESS),
        (("",), INGRESS),
        ((" , ,",), INGRESS),
        (("203.0.113.9",), "203.0.113.9"),
        (("203.0.113.9:4711",), "203.0.113.9"),
        (("  203.0.113.9\t",), "203.0.113.9"),
        (("203.0.113.9, 10.1.1.1, 192.168.1.7",), "203.0.113.9"),
        (("203.0.113.9, 10.1.1.1:80, ,",), "203.0.113.9"),
        (("6.6.6.6, 203.0.113.9",), "203.0.113.9"),
        (("6.6.6.6, 10.6.6.6, 203.0.113.9, 10.1.1.1",), "203.0.113.9"),
        (("6.6.6.6", "203.0.113.9"), "203.0.113.9"),
        (("6.6.6.6, 203.0.113.9", "10.1.1.1"), "203.0.113.9"),
        (("203.0.113.9, 192.168.1.8",), "192.168.1.8"),
        (("2001:db8:8::1",), "2001:db8:8::1"),
        (("[2001:db8:8::1]:443",), "2001:db8:8::1"),
        (("[2001:db8:8::1]",), "2001:db8:8::1"),
        (("2001:DB8:8:0::0001, 2001:db8:7::5",), "2001:db8:8::1"),
        (("fe80::1%eth0",), "fe80::1"),
        (("::ffff:203.0.113.9",), "203.0.113.9"),
        (("[::ffff:203.0.113.9]:80, ::ffff:10.1.1.1",), "203.0.113.9"),
        (("10.2.2.2, 10.1.1.1",), "10.2.2.2"),  # a caller within the trusted networks
        (("203.0.113.9, unknown",), INGRESS),
        (("203.0.113.9, unknown, 10.1.1.1",), "10.1.1.1"),
        (("6.6.6.6, _hidden, 203.0.113.9",), "203.0.113.9"),
        (("203.0.113.9, 1.2.3",), INGRESS),
        (("203.0.113.9, 010.0.0.1",), INGRESS),
        (("203.0.113.9, [10.1.1.1",), INGRESS),
        (("203.0.113.9, 10.1.1.1:port",), INGRESS),
        (("for=203.0.113.9",), INGRESS),
        (('"203.0.113.9"',), INGRESS),
        (("203.0.113.9, \xff\xb9",), INGRESS),
    ],
)
def test_the_caller_is_the_first_address_from_the_right_outside_of_the_proxies(
    lines: tuple[str, ...], address: str
) -> None:
    assert caller(*lines) == address


def test_nobody_else_can_report_an_address() -> None:
    for peer in ("203.0.113.1", "192.168.1.8", "2001:db8:8::1", "11.0.0.1"):
        assert caller("6.6.6.6", peer=peer) == peer
    assert caller("6.6.6.6", peer="::ffff:10.0.0.1") == "6.6.6.6"
    assert caller("6.6.6.6", trusted="::ffff:10.0.0.0/104") == "6.6.6.6"
    assert caller("6.6.6.6", trusted="") == INGRESS
    assert TrustedProxies(TRUSTED).caller({"client": None, "headers": []}) is None


@pytest.mark.parametrize(
    "wrong", ["10.0.0.0/33", "10.0.0.1/8", "proxy.internal", "10.0.0.0/8;11.0.0.0/8", "*", "10.0.0", "::/129"]
)
def test_what_is_no_network_is_refused_in_one_sentence(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"^DELAYQ_TRUSTED_PROXIES: .* is not a network; use ") as caught:
        load_settings(trusted_proxies=f"10.0.0.0/8, {wrong}")
    assert "\n" not in str(caught.value)


async def test_lock_out_audit_and_log_have_the_address_of_the_caller(
    settings: Settings, socket: Serving, tmp_path: Path
) -> None:
    """One caller is locked out, and another one behind the same proxy is not."""
    keys = KeyFile(tmp_path / "keys.yaml")
    right = keys.add("shop")["authorization"]
    wrong = right[:-1] + ("A" if right[-1] != "A" else "B")
    async with socket(keys.settings(settings).replace(trusted_proxies="127.0.0.0/8")) as client:

        async def ask(method: str, path: str, key: str, address: str, **more: Any) -> Any:
            headers = {"authorization": key, "x-forwarded-for": f"6.6.6.6, {address}"}
            return await client.request(method, path, headers=headers, **more)

        with capture_logs() as logs:
            for _ in range(10):
                assert (await ask("GET", "/v1/me", wrong, "203.0.113.9")).status_code == 401
        assert {one["address"] for one in logs if one["event"] == "access_refused"} == {"203.0.113.9"}
        assert (await ask("GET", "/v1/me", right, "203.0.113.9")).status_code == 429
        assert (await ask("GET", "/v1/me", right, "203.0.113.10")).status_code == 200
        with capture_logs() as logs:
            paused = await ask("POST", "/v1/topics:pause", right, "[2001:db8::1]:80", json={"match": "a.*"})
        assert paused.status_code == 200, paused.text
        assert [one["address"] for one in logs if one["event"] == "audit"] == ["2001:db8::1"]
        (entry,) = (await ask("GET", "/v1/audit", right, "203.0.113.10")).json()["entries"]
        assert entry["address"] == "2001:db8::1"
