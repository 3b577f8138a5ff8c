from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.config import Settings, load_settings
from delayq.errors import ConfigError
from delayq.message import DELAY_LEVELS


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DELAYQ_{name.upper()}", raising=False)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("redis_url", "redis://elsewhere:7000/1", "redis://elsewhere:7000/1"),
        ("redis_timeout", "1500", 1_500),
        ("redis_timeout", "2s", 2_000),
        ("final_window", "PT15M", 900_000),
        ("horizon", "365d", 31_536_000_000),
        ("queues", "32", 32),
        ("delay_levels", "1s 5s 1m", (1_000, 5_000, 60_000)),
        ("delay_levels", "[1000, 2000]", (1_000, 2_000)),
        ("node", "worker-1", "worker-1"),
    ],
)
def test_a_setting_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(f"DELAYQ_{name.upper()}", text)
    assert getattr(load_settings(), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("redis_timeout", "soon"),
        ("redis_timeout", "0"),
        ("redis_timeout", "1.5"),
        ("redis_timeout", ""),
        ("queues", "0"),
        ("queues", "16385"),
        ("queues", "many"),
        ("delay_levels", ""),
        ("delay_levels", "1s x"),
        ("delay_levels", "[]"),
        ("delay_levels", "[-5]"),
        ("body_limit", "0"),
        ("body_limit", "99999999999"),
        ("max_attempts", "true"),
        ("api_port", "70000"),
        ("window", "9"),
        ("horizon", "-1"),
    ],
)
def test_a_wrong_setting_is_told_in_one_sentence_with_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    variable = f"DELAYQ_{name.upper()}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{variable}: ")
    assert "\n" not in str(caught.value)


def test_what_is_given_counts_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_QUEUES", "32")
    assert load_settings(queues=4).queues == 4


def test_settings_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_UNHEARD_OF", "x")
    load_settings()


def test_a_worker_that_listens_everywhere_is_found_by_the_name_of_its_host() -> None:
    assert Settings(api_host="10.0.0.7", worker_port=8081).address == "10.0.0.7:8081"
    assert Settings(api_host="0.0.0.0", worker_port=8081).address == f"{socket.gethostname()}:8081"
    assert Settings(api_host="0.0.0.0").address == ""


def test_the_limits_follow_the_settings() -> None:
    limits = load_settings(body_limit=7, batch_limit=8, horizon=9, delay_levels="1s").limits()
    assert (limits.body, limits.batch, limits.horizon, limits.delay_levels) == (7, 8, 9, (1_000,))
    assert load_settings().limits().delay_levels == DELAY_LEVELS


def test_a_wrong_route_table_is_told_when_it_is_read() -> None:
    with pytest.raises(ConfigError, match="DELAYQ_ROUTES"):
        load_settings(routes="[").route_table()


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@given(st.text(max_size=20))
def test_any_text_for_a_duration_is_read_or_told(text: str) -> None:
    said = "DELAYQ_RETRY_BASE: "
    try:
        assert load_settings(retry_base=text).retry_base > 0
    except ConfigError as error:
        said = str(error)
    assert said.startswith("DELAYQ_RETRY_BASE: ")
