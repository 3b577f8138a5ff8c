"""The tests of the console notice what goes wrong in a page that they open."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.console.world import World
from tests.support.browser import Pages, too_wide, violations
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: What a page does, and the complaint about it.
WRONG: Final = {
    "console.error('broken')": "broken",
    "console.warn('careful')": "careful",
    "setTimeout(() => { throw Error('thrown'); })": "uncaught: thrown",
    "Promise.reject(Error('rejected'))": "uncaught: rejected",
    "alert('hello')": "alert: hello",
    "fetch('nothing-here')": "404",
    "fetch('http://elsewhere.test/').catch(() => {})": "securitypolicyviolation: connect-src http://elsewhere.test/",
    "open('http://elsewhere.test/')": "another origin: http://elsewhere.test/",
    "document.body.setAttribute('style', 'color: red')": "securitypolicyviolation: style-src-attr",
    "try { document.body.innerHTML = 'x'; } catch {}": "securitypolicyviolation: require-trusted-types-for",
}


def test_what_goes_wrong_in_a_page_is_a_complaint(chromium: Browser, world: World) -> None:
    opened = Pages(chromium)
    page = opened.open(f"{world.url}#/audit", width=320, accepts=["404 .*/accepted"])
    page.evaluate("() => fetch('accepted')")
    assert (opened.complaints, too_wide(page)) == ([], [])
    page.evaluate("() => document.body.append(Object.assign(document.createElement('canvas'), { id: 'wide' }))")
    page.evaluate("() => document.getElementById('wide').style.setProperty('min-width', '400px')")
    page.evaluate("() => document.body.append(document.createElement('button'))")
    assert '<canvas id="wide" style="min-width: 400px;"></canvas>' in too_wide(page)
    assert violations(page, "button-name") == ["button-name: <button></button>"]
    for script, complaint in WRONG.items():
        opened.complaints.clear()
        page.evaluate(f"() => {{ {script}; }}")
        # Playwright hands over what a page reports while it asks the page for something.
        eventually(lambda told=complaint: page.title() and any(told in one for one in opened.complaints), complaint)  # type: ignore[misc]  # no default in mypy's lambda
    with pytest.raises(AssertionError):
        opened.__exit__(None, None, None)
