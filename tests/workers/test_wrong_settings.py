"""Settings of a worker that would do nothing, or that would be found wrong only when they are used, end it at the start."""

from __future__ import annotations

import re
from typing import Any

import pytest

from delayq.base.errors import ConfigError
from delayq.config import load_settings
from workers.__main__ import main
from workers.node.node import Node

NOWHERE = "redis://127.0.0.1:1/0"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"zookeeper_user": "me"}, "DELAYQ_ZOOKEEPER_USER does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper_password": "x"}, "DELAYQ_ZOOKEEPER_PASSWORD does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper_acl": "creator"}, "DELAYQ_ZOOKEEPER_ACL does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper_tls": "yes"}, "DELAYQ_ZOOKEEPER_TLS does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper_ca": "/nowhere"}, "DELAYQ_ZOOKEEPER_CA does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper_certificate": "/nowhere"}, "DELAYQ_ZOOKEEPER_CERTIFICATE does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper_key": "/nowhere"}, "DELAYQ_ZOOKEEPER_KEY does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper_key_password": "x"}, "DELAYQ_ZOOKEEPER_KEY_PASSWORD does nothing without DELAYQ_ZOOKEEPER"),
    ({"zookeeper": "a", "zookeeper_tls": "yes", "zookeeper_ca": "/nowhere"}, "DELAYQ_ZOOKEEPER_CA: /nowhere"),
    ({"egress_allow": "10.0.0.0/99"}, "DELAYQ_EGRESS_ALLOW: '10.0.0.0/99' is no network"),
    ({"egress_allow": "999.1.1.1"}, "DELAYQ_EGRESS_ALLOW: '999.1.1.1' is no network"),
    ({"egress_allow": "*.internal bad_host!"}, "DELAYQ_EGRESS_ALLOW: 'bad_host!' is no network"),
    ({"routes": "/nowhere.yaml"}, "DELAYQ_ROUTES"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "reason"), WRONG)
def test_a_worker_does_not_begin_with_them(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        Node(load_settings(redis_url=NOWHERE, **given))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ZOOKEEPER", "a:2181,"), ("ZOOKEEPER", "zookeeper://a:2181"), ("ZOOKEEPER", "a:port"), ("ZOOKEEPER_ROOT", "/a//b"),
        ("NODE", "a/b"), ("LOG_LEVEL", "loud"),
    ],
)  # fmt: skip
def test_it_ends_with_status_2_and_the_name_of_the_setting(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"DELAYQ_{name}", value)
    assert main() == 2
    said = capfd.readouterr().err
    assert said.startswith(f"delayq worker: DELAYQ_{name}: ")
    assert said.endswith(f"; it is {value!r}\n") and said.count("\n") == 1
