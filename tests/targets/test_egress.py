"""Where webhooks may go: whatever the notation, nothing that is not public, unless it is allowed by name."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.base.errors import ConfigError
from delayq.targets.webhook.egress import Egress, Refused, endpoint_of
from tests.support.amounts import amount
from tests.support.deliveries import delivery
from tests.support.timeouts import SEND_SECONDS
from tests.targets.conftest import Names, Webhooks

#: Everything here is refused when the route is opened: by its notation, or by the address that it is.
HOSTS = [
    # loopback
    "127.0.0.1", "127.0.0.1.", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1",
    "0x7F.0x0.0x0.0x1", "017700000001", "0177.0.0.1", "0177.0.0.01", "127.0.0.01", "127.0.0.1:80", "0x7f.1",
    "00000177.00.0x0.1", "127.0x0.0.1", "4278190081.", "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]:443",
    # unspecified
    "0", "0.0.0.0", "0x0", "00", "0.0.0.0:443", "0.1.2.3", "[::]", "[0::0]",
    # metadata and link-local
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518",
    "[fe80::1]", "[fe80::a9fe:a9fe]", "[febf::1]", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    # private
    "10.0.0.1", "10.255.255.255", "10.1", "0x0a000001", "167772161", "172.16.0.1", "172.31.255.255", "192.168.0.1",
    "192.168.1", "3232235521", "100.64.0.1", "[fc00::1]", "[fd00::8]", "[fdff:ffff::1]", "[fec0::1]",
    # IPv4 in IPv6
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]",
    "[::ffff:8.8.8.8]", "[::127.0.0.1]", "[::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a00:1]",
    "[2002:7f00:1::]", "[2002:a00:1::1]", "[2002:a9fe:a9fe::]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    # multicast, broadcast, reserved, documentation
    "224.0.0.1", "239.255.255.255", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1", "203.0.113.9",
    "198.51.100.7", "192.88.99.1", "[ff02::1]", "[2001:db8::1]", "[100::1]", "[3fff::1]", "[5f00::1]", "[4000::1]",
    # users, IDN and other looks
    "example.com@127.0.0.1", "127.0.0.1@example.com", "a:b@10.0.0.1", "127.0.0.1%2f@example.com", "@169.254.169.254",
    "example.com#@127.0.0.1", "example.com\\@127.0.0.1", "１２７.０.０.１", "127。0。0。1", "①②⑦.⓪.⓪.①", "ⓛocalhost",
    "lοcalhost", "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "[::1%25lo]", "[fe80::1%25eth0]", "[::1]example.com",
    "example.com[::1]", "[127.0.0.1]", "[0x7f000001]", "127.0.0.1:80:80", "127.0.0.1 ", " 127.0.0.1", "127.0.\t0.1",
    "127.0.0.1\n", "example.com\r\nHost: 10.0.0.1", "1.2.3.4.5", "256.256.256.256", "", ":80", "example.com:0",
    "example.com:65536", "example.com:http", "-.example.com", ".", "..", "999999999999", "0x", "1e3.0x7f", "example..com",
]  # fmt: skip


def test_a_route_to_what_is_not_public_cannot_be_opened(webhooks: Webhooks) -> None:
    """H4 (SSRF: private addresses, odd notations, redirect, DNS rebinding): Webhooks reach public addresses only,
    unless `DELAYQ_EGRESS_ALLOW` names others.

    H4: Such as 127.0.0.1, ::1, 169.254.169.254, fd00::/8, 0.0.0.0, decimal and octal addresses, `@` and IDN.
    """

    def is_refused(url: str) -> bool:
        try:
            webhooks(url, allow=())
        except ConfigError as error:
            return "route hook: the webhook cannot be used" in str(error)
        return False

    urls = [f"{scheme}://{host}/hook" for host in HOSTS for scheme in ("http", "https")]
    assert [url for url in urls if not is_refused(url)] == []


NOT_PUBLIC = [
    "127.0.0.1", "0.0.0.0", "10.1.2.3", "172.20.0.1", "192.168.3.4", "169.254.169.254", "100.64.7.7", "224.0.0.251",
    "255.255.255.255", "::1", "::", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
    "fd12::1", "fe80::1%lo", "ff02::fb", "168.63.129.16",
]  # fmt: skip


@pytest.mark.parametrize("ip", NOT_PUBLIC)
def test_a_name_with_any_address_that_is_not_public_is_never_connected_to(
    webhooks: Webhooks, names: Names, monkeypatch: pytest.MonkeyPatch, ip: str
) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it was connected to"))
    for addresses in ([ip], [ip, "8.8.8.8"], ["8.8.8.8", "2606:4700::1", ip]):
        names["hooks.example"] = addresses
        (result,) = webhooks("https://hooks.example/", allow=()).send([delivery("a")], SEND_SECONDS)
        assert result.outcome == "unavailable"
        assert f"hooks.example is at {ip}, which is not public" in result.reason
        assert "DELAYQ_EGRESS_ALLOW" in result.reason


@settings(max_examples=amount(80, 345))
@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_what_passes_is_global_by_the_word_of_the_standard_library_too(ip: object) -> None:
    text = f"[{ip}]" if ":" in str(ip) else str(ip)
    try:
        Egress(()).addresses(endpoint_of(f"http://{text}/"), 1)
    except Refused:
        return
    assert ip.is_global and not ip.is_multicast and not ip.is_reserved  # type: ignore[attr-defined]


def test_public_addresses_pass() -> None:
    for ip in ("1.1.1.1", "8.8.8.8", "93.184.216.34", "223.255.255.254", "[2606:4700::1]", "[2a00::1]"):
        (address,) = Egress(()).addresses(endpoint_of(f"https://{ip}/"), 1)
        assert address.ip == ip.strip("[]")


@pytest.mark.parametrize(
    ("allow", "host", "ip", "passes"),
    [
        ("10.1.0.0/16", "a.example", "10.1.2.3", True),
        ("10.1.0.0/16", "a.example", "10.2.2.3", False),
        ("10.1.0.0/16", "a.example", "::ffff:10.1.2.3", False),
        ("10.1.2.3", "a.example", "10.1.2.3", True),
        ("fd00::/8", "a.example", "fd12::1", True),
        ("[::1]", "a.example", "::1", True),
        ("hooks.internal", "hooks.internal", "10.1.2.3", True),
        ("Hooks.Internal.", "hooks.internal", "10.1.2.3", True),
        ("hooks.internal", "evil.hooks.internal", "10.1.2.3", False),
        ("*.internal", "a.b.internal", "10.1.2.3", True),
        ("*.internal", "internal", "10.1.2.3", False),
        ("*.internal", "evilinternal", "10.1.2.3", False),
        ("hooks.internal", "other.internal", "10.1.2.3", False),
    ],
)
def test_what_is_allowed_passes_and_nothing_else(names: Names, allow: str, host: str, ip: str, passes: bool) -> None:
    names[host] = [ip]
    egress, endpoint = Egress([allow]), endpoint_of(f"https://{host}/")
    if passes:
        assert [one.ip for one in egress.addresses(endpoint, 5)] == [ip]
    else:
        with pytest.raises(Refused):
            egress.addresses(endpoint, 5)


def test_what_cannot_be_allowed_is_refused(webhooks: Webhooks) -> None:
    for allow in ("10.0.0.1/8", "10.0.0.0/33", "127.1", "*", "*.", "https://a", "a b", "a:80", "0x7f.1"):
        with pytest.raises(ConfigError, match="is no network such as"):
            webhooks("https://hooks.example/", allow=(allow,))


def test_a_name_is_checked_anew_for_each_attempt(webhooks: Webhooks, names: Names) -> None:
    """H4: A name is resolved before each attempt, all its addresses are checked, and the connection goes to a checked
    one."""
    target = webhooks("http://hooks.example:1/", allow=("127.0.0.1",))
    names["hooks.example"] = ["127.0.0.1"]
    assert (
        "refused" in target.send([delivery("a")], SEND_SECONDS)[0].reason.lower()
    )  # nobody listens there: it was connected to
    names["hooks.example"] = ["127.0.0.2"]
    assert "127.0.0.2, which is not public" in target.send([delivery("a")], SEND_SECONDS)[0].reason


def test_a_name_that_is_not_known_and_one_that_is_not_resolved_in_time_took_nothing(
    webhooks: Webhooks, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = webhooks("https://nowhere.example/")
    assert target.send([delivery("a")], SEND_SECONDS)[0].outcome == "unavailable"
    hang = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: (hang.wait(), [])[1])
    try:
        (result,) = target.send([delivery("a")], 0.05)
    finally:
        hang.set()
    assert (result.outcome, "not resolved in time" in result.reason) == ("unavailable", True)


def test_the_errors_of_a_url_do_not_repeat_it(webhooks: Webhooks) -> None:
    for url in (
        "https://me:canary@example.com/",
        "https://example.com/canary path",
        "https://[::1/canary",
        "https:/canary",
    ):
        with pytest.raises(ConfigError) as caught:
            webhooks(url)
        assert "canary" not in str(caught.value)


def test_the_ends_of_a_url_are_kept() -> None:
    end = endpoint_of("HTTPS://Hooks.Example.:8443/a%20b?x=1&y=")
    assert (end.scheme, end.host, end.port, end.target) == ("https", "hooks.example", 8443, "/a%20b?x=1&y=")
    assert end.authority == "hooks.example:8443"
    assert endpoint_of("http://[2606:4700::1]").authority == "[2606:4700::1]"
    assert endpoint_of("http://a.example:80?q").target == "/?q"
