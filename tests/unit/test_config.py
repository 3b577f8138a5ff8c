from __future__ import annotations

import pickle
import re
import socket
from dataclasses import FrozenInstanceError

import pytest

from delayq.base.errors import ConfigError
from delayq.config import OTHERS, SETTINGS, Settings, load_settings, variable
from delayq.domain.message import DELAY_LEVELS
from tests.house.processes import ROOT


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(f"DELAYQ_{name.upper()}", raising=False)


RIGHT = [
    ("redis_url", "redis://elsewhere:7000/1", "redis://elsewhere:7000/1"), ("redis_timeout", "1500", 1_500),
    ("redis_timeout", "2s", 2_000), ("final_window", "PT15M", 900_000), ("horizon", "365d", 31_536_000_000),
    ("queues", "32", 32), ("delay_levels", "1s 5s 1m", (1_000, 5_000, 60_000)),
    ("accept", "unknown-persistence,unknown-eviction", ("unknown-persistence", "unknown-eviction")), ("accept", "", ()),
    ("delay_levels", "[1000, 2000]", (1_000, 2_000)), ("node", "worker-1", "worker-1"), ("log_level", "WARN", "WARN"),
    ("zookeeper", "[::1]:2181, b", "[::1]:2181, b"), ("zookeeper_root", "/a/b.c", "/a/b.c"),
]  # fmt: skip
WRONG = [
    ("redis_timeout", "soon"), ("redis_timeout", "0"), ("redis_timeout", "1.5"), ("redis_timeout", ""), ("queues", "0"),
    ("queues", "16385"), ("queues", "many"), ("accept", "everything"), ("audit_most", "9007199254740993"),
    ("delay_levels", ""), ("delay_levels", "1s x"), ("delay_levels", "[]"),
    ("delay_levels", "[-5]"), ("body_limit", "0"), ("body_limit", "99999999999"), ("max_attempts", "true"),
    ("api_port", "70000"), ("window", "9"), ("horizon", "-1"),
    *(
        ("zookeeper", text)
        for text in (
            "a:2181,", ",a:2181", "a:2181,,b:2181", ",", " ", "a:2181,/delayq", "zookeeper://a:2181", "zk://a", "http://a:2181/x",
            "a:0", "a:65536", "a:port", "a:", ":2181", "a:2181:2181", "::1:2181", "[::1", "a b:2181", "a@b:2181", "a:2181?x=1",
            "a:2181#x", "a;b", "a:2181//delayq", "a:2181/x//y", "a:2181/x/", "a:2181/x/..", "a:2181/./x", "a:2181/x y", "/delayq",
            f"{'x' * 64}.example:2181,a:2181", "a:2181,b..example:2181",
        )
    ),
    *(("zookeeper_root", text) for text in ("/", "delayq", "/a/", "//a", "/a//b", "/..", "/a/./b", "/a b", "/a\u00e9")),
    *(("node", text) for text in ("", "a/b", ".", "..", "a\nb", "a\tb", "x" * 256)),
    ("log_level", "loud"), ("log_level", ""),
]  # fmt: skip


def test_a_setting_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text, value in RIGHT:
        monkeypatch.setenv(f"DELAYQ_{name.upper()}", text)
        assert getattr(load_settings(), name) == value
    assert load_settings(queues=4).queues == 4  # what is given counts more


def test_a_wrong_setting_is_refused_in_one_sentence_with_its_name() -> None:
    for name, text in WRONG:
        variable = f"DELAYQ_{name.upper()}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, text)
            with pytest.raises(ConfigError) as caught:
                load_settings()
        assert str(caught.value).startswith(f"{variable}: "), text
        assert "\n" not in str(caught.value), text
    with pytest.raises(ConfigError, match="DELAYQ_QUEES"):
        load_settings(quees=4)
    with pytest.raises(ConfigError, match="DELAYQ_ROUTES"):
        load_settings(routes="[").route_table()
    with pytest.raises(ConfigError, match="DELAYQ_ZOOKEEPER_PASSWORD: ") as caught:
        load_settings(zookeeper_password=[4711])
    assert "4711" not in str(caught.value)  # a secret is not shown


def test_a_login_in_a_wrong_setting_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(zookeeper="user:secret@host")
    assert "DELAYQ_ZOOKEEPER" in str(raised.value) and "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "hosts", "path"),
    [
        ("a:2181,b", "a:2181,b", "/mine"), ("a:2181/", "a:2181", "/mine"), ("a, [::1]:2181/x", "a,[::1]:2181", "/x/mine"),
        ("a/shop/queues", "a", "/shop/queues/mine"),
    ],
)  # fmt: skip
def test_a_chroot_stands_before_the_root(given: str, hosts: str, path: str) -> None:
    settings = load_settings(zookeeper=given, zookeeper_root="/mine")
    assert (settings.zookeeper_hosts, settings.zookeeper_path) == (hosts, path)


NEAREST = {
    "DELAYQ_API_KEYSS": "DELAYQ_API_KEYS",
    "DELAYQ_MIN_REPLICA": "DELAYQ_MIN_REPLICAS",
    "DELAYQ_REDISURL": "DELAYQ_REDIS_URL",
    "delayq_redis_url": "DELAYQ_REDIS_URL",
    "DELAYQ_WORKER_PORTS": "DELAYQ_WORKER_PORT",
}


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    for name, nearest in NEAREST.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, "x")
            with pytest.raises(ConfigError, match=f"^{name} is not a setting of delayq; the nearest is {nearest}, and"):
                load_settings()


#: As a kubelet tells of the Services `delayq` and `delayq-api`.
OF_KUBERNETES = {
    "DELAYQ_SERVICE_HOST": "10.0.0.7", "DELAYQ_SERVICE_PORT": "80", "DELAYQ_SERVICE_PORT_HTTP": "80",
    "DELAYQ_PORT": "tcp://10.0.0.7:80", "DELAYQ_PORT_80_TCP": "tcp://10.0.0.7:80", "DELAYQ_PORT_80_TCP_PROTO": "tcp",
    "DELAYQ_PORT_80_TCP_PORT": "80", "DELAYQ_PORT_80_TCP_ADDR": "10.0.0.7", "DELAYQ_API_SERVICE_HOST": "10.0.0.8",
    "DELAYQ_API_SERVICE_PORT": "80", "DELAYQ_API_PORT": "tcp://10.0.0.8:80", "DELAYQ_API_PORT_80_TCP_ADDR": "10.0.0.8",
    "DELAYQ_WORKER_PORT": "udp://10.0.0.9:53",
}  # fmt: skip


def test_what_kubernetes_tells_of_services_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """H16: Variables of Kubernetes for Services, and those of compose and the tests, are not settings."""
    for name, value in OF_KUBERNETES.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.api_port, settings.worker_port) == (8080, 0)
    monkeypatch.setenv("DELAYQ_API_PORT", "8090")
    assert load_settings().api_port == 8090


def test_variables_of_compose_and_of_tests_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    in_file = set(re.findall(r"\$\{(DELAYQ_\w+)", (ROOT / "docker-compose.yml").read_text()))
    strangers = in_file - {variable(name) for name in SETTINGS}
    assert strangers == OTHERS - {"DELAYQ_JARS"}
    for name in (*OTHERS, "DELAYQ_TEST_ALL"):
        monkeypatch.setenv(name, "x")
    load_settings()


def test_a_setting_does_not_change_but_is_replaced_by_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_PASSWORD", "open sesame")
    settings = load_settings(queues=4)
    with pytest.raises(FrozenInstanceError):
        settings.queues = 5  # type: ignore[misc]  # mypy knows, too
    assert pickle.loads(pickle.dumps(settings)) == settings and "sesame" not in repr(settings)
    other = settings.replace(retry_base="2s")
    assert (other.queues, other.retry_base, other.redis_url) == (4, 2_000, settings.redis_url)
    limits = other.replace(body_limit=7, batch_limit=8, horizon=9, delay_levels="1s").limits()
    assert (limits.body, limits.batch, limits.horizon, limits.delay_levels) == (7, 8, 9, (1_000,))
    assert settings.limits().delay_levels == DELAY_LEVELS
    assert settings.retry_base == 1_000
    with pytest.raises(ConfigError, match=r"^DELAYQ_QUEUES: .* it is 0$"):
        settings.replace(queues=0)


def test_a_worker_that_listens_everywhere_is_found_by_the_name_of_its_host() -> None:
    assert Settings(api_host="10.0.0.7", worker_port=8081).address == "10.0.0.7:8081"
    assert Settings(api_host="0.0.0.0", worker_port=8081).address == f"{socket.gethostname()}:8081"
    assert Settings(api_host="0.0.0.0").address == ""


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, setting in SETTINGS.items() if not setting.description] == []
