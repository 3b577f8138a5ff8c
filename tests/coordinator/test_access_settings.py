"""Which settings say how a node reaches a ZooKeeper that wants a user, a password or a certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.zookeeper.access import access_of
from delayq.base.errors import ConfigError
from delayq.config import load_settings
from tests.support.certificates import Authority

PASSWORD = "canary-zookeeper-1"
KEY_PASSWORD = "canary-key-3"


def test_secrets_come_from_files_and_the_environment_and_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    shown = authority.issue("settings", password=KEY_PASSWORD)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    settings = load_settings(
        zookeeper_user="delayq",
        zookeeper_password=f"file:{tmp_path}/password",
        zookeeper_tls="yes",
        zookeeper_ca=str(authority.file),
        zookeeper_certificate=str(shown.certificate),
        zookeeper_key=str(shown.key),
        zookeeper_key_password="env:KEY_PASSWORD",
    )
    access = access_of(settings)
    assert (access.password, access.key_password, access.own) == (PASSWORD, KEY_PASSWORD, True)
    assert "canary" not in repr(access) + repr(load_settings(zookeeper_password="canary"))


WRONG = [
    ({"zookeeper_user": "delayq"}, "go together"),
    ({"zookeeper_password": "canary"}, "go together"),
    (
        {"zookeeper_user": "a", "zookeeper_password": "env:NOWHERE"},
        "DELAYQ_ZOOKEEPER_PASSWORD: the variable NOWHERE is not set",
    ),
    ({"zookeeper_user": "a", "zookeeper_password": "file:/nowhere"}, "cannot read /nowhere: No such file"),
    ({"zookeeper_ca": "ca.pem"}, "set DELAYQ_ZOOKEEPER_TLS=yes"),
    ({"zookeeper_tls": "yes", "zookeeper_key": "key.pem"}, "goes with DELAYQ_ZOOKEEPER_CERTIFICATE"),
    ({"zookeeper_tls": "yes", "zookeeper_ca": "/nowhere"}, "DELAYQ_ZOOKEEPER_CA: /nowhere: No such file"),
    ({"zookeeper_tls": "yes", "zookeeper_certificate": "/nowhere"}, "/nowhere: No such file"),
    ({"zookeeper_acl": "creator"}, "needs a user"),
]


def test_wrong_settings_are_refused_without_a_secret() -> None:
    for given, said in WRONG:
        with pytest.raises(ConfigError, match=said) as caught:
            access_of(load_settings(**given))
        assert "canary" not in str(caught.value)


def test_a_key_whose_password_is_another_is_told_and_asks_nobody(authority: Authority) -> None:
    shown = authority.issue("locked", password=KEY_PASSWORD)
    given = {"zookeeper_tls": "yes", "zookeeper_certificate": str(shown.both)}
    for password in ("", "canary-wrong"):
        with pytest.raises(ConfigError, match="it is no such PEM file, or its password is another") as caught:
            access_of(load_settings(**given, zookeeper_key_password=password))
        assert "canary" not in str(caught.value)
