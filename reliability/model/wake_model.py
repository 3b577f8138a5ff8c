"""A model of when the owner of a queue looks: `sleep_until`, the watermark, wakes and the owner's own memory.

    .venv/bin/python -m reliability.model wake

A step is one script, a ms that passes, or the arrival of an answer or a wake at the owner. Between any two steps anything
else may happen, so wakes and answers overtake each other. A wake moves the moment at which the owner looks, and the owner
pulls only at that moment. The model has no lost wakes, no look of each second that makes up for them, and no clocks that
step. It has no messages in flight and no backlogs: a pull takes everything that is due.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import search

Step = tuple[str, "State"]

LAST_TICK, MOST = 3, 3
NEVER = LAST_TICK + 1


class Rules(Struct, frozen=True):
    wake_moves: bool = True  # a wake moves the moment of the next look (False: it neither pulls nor moves it)
    wake_rewinds: bool = True  # a wake before the offset moves the offset back
    answer_keeps_wakes: bool = True  # an answer undoes no wake that arrived since its pull was sent
    sleeps_by_script: bool = True  # the pull itself writes `sleep_until`


class Answer(Struct, frozen=True):
    """The answer to a pull: the last due time that it looked at, and the next one."""

    last: int | None
    next_due: int


class State(Struct, frozen=True):
    now: int = 0
    waiting: tuple[int, ...] = ()  # due times, sorted
    scheduled: int = 0
    sleep_until: int = -1
    watermark: int = -1
    published: tuple[int, ...] = ()  # and not received yet
    offset: int = -1  # everything up to there was looked at
    next_due: int = -1  # by the last answer: at first the owner pulls
    back: int = NEVER  # the earliest due time after the offset in a wake since then
    unread: bool = False
    answer: Answer | None = None  # on its way


def looks_at(s: State) -> int:
    return -1 if s.unread else min(s.next_due, s.back)


def steps(s: State, rules: Rules) -> Iterator[Step]:
    if s.now < LAST_TICK:
        yield "a ms passes", replace(s, now=s.now + 1)
    if s.scheduled < MOST:
        for due in range(s.now, LAST_TICK + 1):
            yield f"schedule due {due}", schedule(s, due)
    for due in sorted(set(s.waiting)):
        left = list(s.waiting)
        left.remove(due)
        yield f"cancel due {due}", replace(s, waiting=tuple(left))
    for place, due in enumerate(s.published):
        received = replace(s, published=s.published[:place] + s.published[place + 1 :])
        yield f"the wake for {due} arrives", receive(received, due, rules)
    if s.answer is None and looks_at(s) <= s.now:
        yield "pull", pull(s, rules)
    if s.answer is not None:
        yield "the answer arrives", take(s, s.answer, rules)


def schedule(s: State, due: int) -> State:
    s = replace(s, waiting=tuple(sorted((*s.waiting, due))), scheduled=s.scheduled + 1)
    if due < s.sleep_until:
        s = replace(s, sleep_until=due)
    elif due > s.watermark:
        return s
    return replace(s, published=tuple(sorted((*s.published, due))))


def receive(s: State, due: int, rules: Rules) -> State:
    if due <= s.offset:
        return replace(s, offset=due - 1, unread=True) if rules.wake_rewinds else s
    return replace(s, back=min(s.back, due)) if rules.wake_moves else s


def pull(s: State, rules: Rules) -> State:
    """It begins at the offset; the script runs now."""
    looked = [due for due in s.waiting if s.offset < due <= s.now]
    rest = tuple(due for due in s.waiting if due not in looked)
    next_due = min((due for due in rest if due > s.now), default=NEVER)
    return replace(
        s,
        waiting=rest,
        watermark=max([s.watermark, *looked]),
        sleep_until=next_due if rules.sleeps_by_script else s.sleep_until,
        unread=False,
        back=NEVER,
        answer=Answer(max(looked, default=None), next_due),
    )


def take(s: State, answer: Answer, rules: Rules) -> State:
    s = replace(s, answer=None, next_due=answer.next_due)
    if not rules.answer_keeps_wakes:
        s = replace(s, back=NEVER, unread=False)
    if answer.last is None or s.unread:
        return s
    if s.back <= answer.last:
        return replace(s, unread=True)
    return replace(s, offset=answer.last)


def late(s: State) -> str | None:
    """Something is due, the owner sleeps past it, and no answer or wake is on its way to it."""
    if s.answer is None and not s.published and looks_at(s) > s.now and any(due <= s.now for due in s.waiting):
        return "a due message waits, and its owner sleeps"
    return None


def check(rules: Rules, limit: int = 400_000) -> tuple[str | None, str, int]:
    return search(State(), lambda s: steps(s, rules), late, limit)
