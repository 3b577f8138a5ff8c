"""What goes wrong in a page is noticed by the tests that open it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.console.world import World
from tests.support.browser import Pages, too_wide, violations
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("() => console.error('broken')", "broken"),
        ("() => console.warn('careful')", "careful"),
        ("() => void setTimeout(() => { throw Error('thrown'); })", "uncaught: thrown"),
        ("() => void Promise.reject(Error('rejected'))", "uncaught: rejected"),
        ("() => alert('hello')", "alert: hello"),
        ("() => fetch('nothing-here')", "404"),
        (
            "() => fetch('http://elsewhere.test/').catch(() => {})",
            "securitypolicyviolation: connect-src http://elsewhere.test/",
        ),
        ("() => void open('http://elsewhere.test/')", "another origin: http://elsewhere.test/"),
        ("() => document.body.setAttribute('style', 'color: red')", "securitypolicyviolation: style-src-attr"),
        (
            "() => { try { document.body.innerHTML = 'x'; } catch {} }",
            "securitypolicyviolation: require-trusted-types-for",
        ),
    ],
)
def test_what_goes_wrong_is_a_complaint(chromium: Browser, world: World, script: str, complaint: str) -> None:
    opened = Pages(chromium)
    page = opened.open(f"{world.url}#/audit")
    assert opened.complaints == []
    page.evaluate(script)
    # What a page tells is heard while something is asked of it.
    eventually(lambda: page.title() and any(complaint in told for told in opened.complaints), complaint)
    with pytest.raises(AssertionError):
        opened.__exit__(None, None, None)


def test_what_is_accepted_is_none(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/audit", accepts=["404 .*/nothing-here"])
    page.evaluate("() => fetch('nothing-here')")


def test_what_is_too_wide_or_has_no_name_is_told(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/audit", width=320)
    page.evaluate("() => document.body.append(Object.assign(document.createElement('canvas'), { width: 400 }))")
    page.evaluate("() => document.body.append(document.createElement('button'))")
    assert '<canvas width="400"></canvas>' in too_wide(page)
    assert [one for one in violations(page) if one.startswith("button-name")] == ["button-name: <button></button>"]
