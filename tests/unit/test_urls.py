"""URLs of several hosts, also with a Python whose `urlsplit` refuses a bracket behind the first host."""

from __future__ import annotations

from types import ModuleType
from urllib.parse import SplitResult, urlsplit

import pytest

import delayq.base.urls
import delayq.store.connect.address
import delayq.targets.rabbitmq.address
from delayq.base.urls import split_url
from delayq.domain.routes import Route
from delayq.store.connect.address import parse, without_user
from delayq.targets.rabbitmq.address import parameters_of


def _strict(url: str) -> SplitResult:
    """As the `urlsplit` of Pythons that check what stands before and behind a bracket."""
    parts = urlsplit(url)
    before, bracket, _ = parts.netloc.rpartition("@")[2].partition("[")
    if bracket and before:
        raise ValueError("Invalid IPv6 URL")
    return parts


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    places: tuple[ModuleType, ...] = (delayq.base.urls, delayq.store.connect.address, delayq.targets.rabbitmq.address)
    for module in places:
        monkeypatch.setattr(module, "urlsplit", _strict)


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://u:p@a:1,[::1]:3/0?x=1#y",
        "kafka://a",
        "log:",
        "x://a?q",
        "x:///p",
        "redis+stream:redis://h",
        "",
        "a",
    ],
)
def test_a_url_falls_into_the_same_parts_as_ever(url: str) -> None:
    one_host = urlsplit(url.replace("a:1,[::1]:3", "h"))
    assert split_url(url) == one_host._replace(netloc=one_host.netloc.replace("h", "a:1,[::1]:3"))


def test_an_ipv6_host_need_not_be_the_first() -> None:
    assert parse("redis+cluster://a:1,b,[::1]:3").nodes == (("a", 1), ("b", 6379), ("::1", 3))
    assert parse("redis+sentinel://u:p@a:1,[::1]:3/s").nodes == (("a", 1), ("::1", 3))
    assert without_user("redis+cluster://u:p@a:1,[::1]:3/?password=p") == "redis+cluster://a:1,[::1]:3/"
    url = "rabbitmq://u:p@a:1,b,[::1]:3/v"
    assert [(one.host, one.port) for one in parameters_of(url)] == [("a", 1), ("b", 5672), ("::1", 3)]
    Route(name="r", target=url).check()
