"""The commands dead-letters list, groups, redrive and discard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from delayq.answers.messages import DeadLetterOut, DeadLettersOut, dead_groups_out, dead_letter_out
from delayq.answers.results import ResultOut, ResultsOut
from delayq.base.errors import StoreError
from delayq.base.local_time import shown
from delayq.base.terminal import Output, say
from delayq.cli.options import (
    ApiUrl,
    AsJson,
    BadUse,
    Ids,
    Limit,
    NoRouteCheck,
    PageToken,
    Reason,
    RedisUrl,
    by_me,
    connect_any,
    moment,
    option,
)
from delayq.client.client import Client

#: Dead letters in one reply: their bodies may be large.
STEP = 25


def list_(
    limit: Limit = 100,
    page_token: PageToken = None,
    newest: Annotated[bool, option("--newest", help="Print the newest first.")] = False,
    topic: Annotated[str, option("--topic", metavar="PATTERN", help="Only these topics: a pattern with * and ?.")] = "",
    reason: Annotated[str, option("--reason", metavar="TEXT", help="Only reasons that contain this text.")] = "",
    group: Annotated[
        str | None, option("--group", metavar="REASON", help="Only this group, as dead-letters groups prints it.")
    ] = None,
    from_: Annotated[
        str | None,
        option(
            "--from",
            metavar="TIME",
            help="Earliest death: 15:30, a date, Unix ms, 2h ago.",
        ),
    ] = None,
    to: Annotated[str | None, option("--to", metavar="TIME", help="Latest death, exclusive.")] = None,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print dead letters with their reasons, oldest first."""
    letters: list[DeadLetterOut] = []
    token = page_token
    with connect_any(redis_url, api) as client:
        now = client.redis_now()
        wanted: dict[str, Any] = {
            "newest": newest,
            "topic": topic,
            "reason": reason,
            "group": group,
            "from_": moment("--from", from_, now),
            "to": moment("--to", to, now),
        }
        while True:
            page = client.dead_letters(min(STEP, limit - len(letters)), token, **wanted)
            letters += map(dead_letter_out, page.letters)
            token = page.next_token
            if token is None or len(letters) >= limit:
                break
    if json:
        Output().json(DeadLettersOut(letters, token))
        return 0
    if letters:
        columns = ("id", "died", "attempts", "topic", "reason")
        Output().table(columns, map(_row, letters))
    else:
        say("there are no dead letters." if not any(wanted.values()) else "no dead letter matches.")
    if token is not None:
        say(f"more may follow: --page-token {token}")
    return 0


def _row(letter: DeadLetterOut) -> Sequence[object]:
    topic = letter.message.topic if letter.message else None
    return letter.id, shown(letter.dead_time), letter.attempts, topic, letter.reason


def groups(
    limit: Limit = 100,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print the newest dead letters by topic and reason."""
    with connect_any(redis_url, api) as client:
        answer = dead_groups_out(client.dead_groups(), limit)
    if json:
        Output().json(answer)
        return 0
    if answer.groups:
        rows = ((one.count, one.topic, shown(one.last_time), one.examples[0], one.reason) for one in answer.groups)
        Output().table(("count", "topic", "last died", "such as", "reason"), rows)
    else:
        say("there are no dead letters.")
    if not answer.complete:
        say(f"only the {answer.looked} newest dead letters are counted; there are more.")
    return 0


def redrive(
    ids: Ids = None,
    every: Annotated[bool, option("--all", help="Redrive all dead letters that exist now.")] = False,
    no_route_check: NoRouteCheck = False,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Redrive dead letters: put them back into the queue, due now.

    Exit 1 if one of the ids could not be redriven.
    """
    if bool(ids) == every:
        raise BadUse("no message is selected; give ids or --all")
    results = _Results(json)
    by = by_me(reason)
    with connect_any(redis_url, api, check_routes=not no_route_check) as client, results:
        for some in _all_ids(client) if every else iter([ids or []]):
            results.take(some, client.redrive(some, by=by))
    if every and not results.all:
        say("there are no dead letters.")
    return 0 if all(result == "scheduled" for _, result in results.all) else 1


class _Results:
    """Print the outcome of each id, line by line, or as JSON at the end, even if the run is interrupted."""

    def __init__(self, json: bool) -> None:
        self.all: list[tuple[str, str]] = []
        self._json = json
        self._output = Output()

    def take(self, ids: Sequence[str], outcomes: Sequence[str | StoreError]) -> None:
        for id, outcome in zip(ids, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                raise outcome
            self.all.append((id, outcome))
            if not self._json:
                self._output.row(("id", "result"), (id, outcome))

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: object, *_: object) -> None:
        if self._json and (error is None or self.all):
            self._output.json(ResultsOut([ResultOut(id=id, result=result) for id, result in self.all]))


def _all_ids(client: Client) -> Iterator[list[str]]:
    """Yield the ids of all dead letters page by page, except those that die again meanwhile."""
    began = client.redis_now()
    token: str | None = None
    while True:
        page = client.dead_letters(STEP, token, to=began + 1)
        if some := [one.id for one in page.letters]:
            yield some
        token = page.next_token
        if token is None:
            return


def discard(
    ids: Ids = None, reason: Reason = "", redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False
) -> int:
    """Delete dead letters permanently.

    Exit 1 if one of the ids is not a dead letter.
    """
    if not ids:
        raise BadUse("no dead letter is selected; give their ids")
    results = _Results(json)
    with connect_any(redis_url, api) as client, results:
        results.take(ids, client.discard_many(ids, by=by_me(reason)))
    return 0 if all(result == "discarded" for _, result in results.all) else 1
