"""What a route to RocketMQ may say, and what the client is kept from doing."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delayq import ConfigError
from delayq.domain.routes import Route
from delayq.targets.rocketmq.client import MessageIds, grpc
from delayq.targets.rocketmq.target import Options, RocketMQTarget
from delayq.targets.rocketmq.verdicts import ACCEPTABLE
from tests.support.certificates import Authority
from tests.support.deliveries import delivery, outcomes
from tests.support.rocketmq_proxy import FakeProxy
from tests.support.timeouts import SEND_SECONDS


@pytest.mark.parametrize(
    ("url", "options", "complaint"),
    [
        ("rocketmq://here", {}, "rocketmq://HOST:PORT"),
        ("rocketmq://here:1/topic", {}, "rocketmq://HOST:PORT"),
        ("rocketmq://user:canary@here:1", {}, "do not go into the URL"),
        ("rocketmq://here:1,there:2", {}, "IPv4"),
        ("rocketmq://here:1", {"tpoic": "x"}, "tpoic"),
        ("rocketmq://here:1", {"topic": "x-{topc}"}, "topic has '{topc}'; {topic} is all that stands for something"),
        ("rocketmq://here:1", {"accept": ["NEVER"]}, "FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE"),
        ("rocketmq://here:1", {"accessKey": "x"}, "go together"),
        ("rocketmq://here:1", {"accessKey": "env:NO_SUCH", "secretKey": "x"}, "NO_SUCH"),
        ("rocketmq://here:1", {"ca": "/x"}, "ca is for tls"),
        ("rocketmq://here:1", {"tls": True, "ca": "/no/such/file"}, "/no/such/file"),
    ],
)
def test_wrong_settings_are_told(url: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match="route shop: RocketMQ cannot be used: ") as told:
        RocketMQTarget(url, Route(name="shop", target=url, options=options), "")
    assert complaint in str(told.value)
    assert "canary" not in str(told.value)


def test_over_tls_only_a_proxy_with_a_good_certificate_is_spoken_to(authority: Authority) -> None:
    shown = authority.issue("rocketmq")
    pair = [(shown.key.read_bytes(), shown.certificate.read_bytes())]
    with FakeProxy(credentials=grpc.ssl_server_credentials(pair)) as proxy:
        for options, outcome in (({"ca": str(authority.file)}, "ok"), ({}, "unavailable")):
            route = Route(name="r", target=proxy.url, options={"tls": True, **options})
            target = RocketMQTarget(proxy.url, route, "")
            assert outcomes(target.send([delivery("a")], SEND_SECONDS)) == [outcome]
            target.close()
    assert len(proxy.messages) == 1


def test_the_page_names_every_option() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "targets-rocketmq.md").read_text(encoding="utf-8")
    assert [name for name in Options.__struct_encode_fields__ if f"`{name}`" not in page] == []
    assert [name for name in ACCEPTABLE if f"`{name}`" not in page] == []


def test_ids_differ_and_go_on_after_the_greatest_number() -> None:
    ids = MessageIds()
    first = ids.next(1_700_000_000_000)
    assert len(first) == 34 and first.startswith("01") and first != ids.next(1_700_000_000_000)
    ids._numbers = itertools.count(2**32 - 1)
    assert [ids.next(0)[-8:] for _ in range(2)] == ["FFFFFFFF", "00000000"]


def test_the_client_leaves_nothing_in_the_home_folder_and_says_nothing(tmp_path: Path) -> None:
    code = "import delayq.targets.rocketmq.target as r; from rocketmq import Producer; from rocketmq.v5.log import logger\n"
    ran = subprocess.run(
        [sys.executable, "-c", code + "logger.error('said')"],
        env={"HOME": str(tmp_path), "PYTHONPATH": "."},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(tmp_path.iterdir()) == []
    assert ran.stderr == ""
    assert not logging.getLogger("rocketmq-python-client").handlers
