"""Where secrets may stand, and that nobody shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq.base.errors import ConfigError
from delayq.config import load_settings
from delayq.store.connect.address import parse

CANARY = "canary-@/:%1"
QUOTED = "canary-%40%2F%3A%251"


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text(CANARY + "\n")
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("PLACE", "redis://one:6379/2")
    monkeypatch.delenv("DELAYQ_REDIS_URL", raising=False)


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("redis://one:6379/2?client_name=a@b", f"redis://delayq:{QUOTED}@one:6379/2?client_name=a@b"),
        ("env:PLACE", f"redis://delayq:{QUOTED}@one:6379/2"),
        ("rediss+sentinel://a:1,b:2/shop", f"rediss+sentinel://delayq:{QUOTED}@a:1,b:2/shop"),
        ("redis+cluster://a:1,b:2", f"redis+cluster://delayq:{QUOTED}@a:1,b:2"),
        ("unix:///run/redis.sock?client_name=a@b", f"unix://delayq:{QUOTED}@/run/redis.sock?client_name=a@b"),
    ],
)
def test_a_password_of_its_own_gets_into_any_url(
    url: str, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_URL", url)
    monkeypatch.setenv("DELAYQ_REDIS_USER", "delayq")
    for password in ("env:CANARY", f"file:{tmp_path}/password", CANARY):
        monkeypatch.setenv("DELAYQ_REDIS_PASSWORD", password)
        settings = load_settings()
        assert settings.redis_url == whole
        assert parse(settings.redis_url).url == whole
        assert "canary" not in repr(settings) + str(settings)


def test_the_whole_url_may_stand_in_a_file_and_a_password_alone_is_for_the_redis_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text(f"\ufeffredis://:{QUOTED}@one:6379/2\n")  # some editors begin a file with this mark
    with monkeypatch.context() as patch:
        patch.setenv("DELAYQ_REDIS_URL", f"file:{tmp_path}/url")
        assert load_settings().redis_url == f"redis://:{QUOTED}@one:6379/2"
    monkeypatch.setenv("DELAYQ_REDIS_PASSWORD", "env:CANARY")
    assert load_settings().redis_url == f"redis://:{QUOTED}@127.0.0.1:6379/0"
    monkeypatch.setenv("DELAYQ_REDIS_USER", "delayq")
    assert load_settings(redis_url="redis://elsewhere/0").redis_url == "redis://elsewhere/0"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"redis_user": "delayq"}, "DELAYQ_REDIS_USER needs DELAYQ_REDIS_PASSWORD, which must not be empty"),
        (
            {"redis_password": "canary", "redis_url": "unix:/run/redis.sock"},
            "a Unix socket is unix:///path/of/the.sock",
        ),
        ({"redis_url": f"redis://a:{QUOTED}@one/0", "redis_password": CANARY}, "needs a DELAYQ_REDIS_URL without"),
        ({"redis_password": "env:NOWHERE"}, "DELAYQ_REDIS_PASSWORD: the variable NOWHERE is not set"),
        ({"redis_url": "file:/nowhere"}, "DELAYQ_REDIS_URL: cannot read /nowhere: No such file or directory"),
        ({"redis_url": f"redis://a:{QUOTED}@one/0", "queues": 0}, "DELAYQ_QUEUES"),
    ],
)
def test_what_makes_no_sense_is_told_without_the_secret(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load_settings(**given)
    assert "canary" not in str(caught.value)
