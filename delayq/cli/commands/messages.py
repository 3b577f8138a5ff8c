"""The commands cancel, reschedule, deliver-now, get, explain and find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from msgspec import UNSET

from delayq import Cancelled, Scheduled
from delayq.answers.messages import FoundOut, MessageOut, StateOut, found_out, scheduled_out, state_out
from delayq.answers.results import ResultOut, ResultsOut
from delayq.base.errors import StoreError
from delayq.base.local_time import in_sentence, shown
from delayq.base.terminal import Output, say
from delayq.cli.options import (
    ApiUrl,
    AsJson,
    At,
    BadUse,
    Delay,
    Ids,
    Level,
    Reason,
    RedisUrl,
    Verbose,
    by_me,
    connect_any,
    due_of,
    option,
)
from delayq.client.changing.messages import Rescheduled
from delayq.client.looking.search import order_of
from delayq.store.commands import Filter, Found

if TYPE_CHECKING:
    from delayq.client.client import Client

#: Messages of a page if the command prints all messages.
PAGE: Final = 1_000

_UNKNOWN = "no message has the id {id}; ids of ended messages are remembered only for a while"


def cancel(
    ids: Ids = None,
    key: Annotated[str | None, option("--key", metavar="KEY", help="All messages with this business key.")] = None,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Cancel messages and print the result of each.

    Exit 1 unless all of them are certainly cancelled.
    """
    if bool(ids) == (key is not None):
        raise BadUse("no message is selected; give ids or --key")
    with connect_any(redis_url, api) as client:
        by = by_me(reason)
        outcomes = client.cancel_by_key(key, by=by) if key is not None else client.cancel_many(ids or (), by=by)
    return _print_each(outcomes, "cancelled", key, json=json)


def _print_each(
    outcomes: Sequence[Cancelled | Rescheduled | StoreError], wanted: str, key: str | None, *, json: bool
) -> int:
    """Print the results of messages, by ids or by a `key`. Return exit status 1 unless all results are `wanted`."""
    results = [one for one in outcomes if not isinstance(one, StoreError)]
    if json:
        Output().json(ResultsOut([ResultOut(id=one.id, result=one.result) for one in results]))
    else:
        for one in results:
            Output().row(("id", "result"), (one.id, one.result))
    for outcome in outcomes:
        if isinstance(outcome, StoreError):
            raise outcome
    if key is not None and not results:
        say(f"no message has the key {key}.")
        return 1
    return 0 if all(one.result == wanted for one in results) else 1


def reschedule(
    id: Annotated[str, typer.Argument(metavar="ID", help="The message.")],
    delay: Delay = None,
    at: At = None,
    level: Level = None,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Change the due time of a message.

    Prints the id and the new due time. Refused if cancelling the message would not be certain.
    """
    due = due_of(delay, at, level)
    with connect_any(redis_url, api) as client:
        outcome = client.reschedule(id, by=by_me(reason), **due)
    if outcome.result == "notFound":
        say(_UNKNOWN.format(id=id) + ".")
        return 1
    if outcome.due is None or outcome.queue is None:
        raise BadUse(f"{id} {in_sentence(outcome.refusal)}")
    if json:
        Output().json(scheduled_out(Scheduled(id=id, queue=outcome.queue, due=outcome.due)))
    else:
        Output().row(("id", "due", "state"), (id, shown(outcome.due), "scheduled"))
    return 0


def deliver_now(
    ids: Ids = None,
    key: Annotated[str | None, option("--key", metavar="KEY", help="All messages with this business key.")] = None,
    force: Annotated[bool, option("--force", help="Ignore pauses and limits.")] = False,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Deliver messages now and print the result of each.

    Exit 1 unless all of them are due now.
    """
    if bool(ids) == (key is not None):
        raise BadUse("no message is selected; give ids or --key")
    with connect_any(redis_url, api) as client:
        by = by_me(reason)
        if key is not None:
            outcomes = client.deliver_now_by_key(key, force=force, by=by)
        else:
            outcomes = client.deliver_now_many(ids or (), force=force, by=by)
    return _print_each(outcomes, "scheduled", key, json=json)


def get(
    id: Annotated[str, typer.Argument(metavar="ID", help="The message.")],
    explain: Annotated[bool, option("--explain", help="Also print what the message waits for.")] = False,
    verbose: Verbose = False,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print the state and the fields of a message."""
    return _print_known(id, redis_url, api, explain=explain, verbose=verbose, json=json)


def explain(
    id: Annotated[str, typer.Argument(metavar="ID", help="The message.")],
    verbose: Verbose = False,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Explain why a message is not delivered yet."""
    return _print_known(id, redis_url, api, explain=True, verbose=verbose, json=json)


def _print_known(id: str, redis_url: str | None, api: str | None, *, explain: bool, verbose: bool, json: bool) -> int:
    with connect_any(redis_url, api) as client:
        found = client.get(id)
        explained = client.explain(found) if explain and found is not None else None
    if found is None:
        say(_UNKNOWN.format(id=id) + ".")
        return 1
    answer = state_out(found, explained)
    if json:
        Output().json(answer)
        return 0
    cells: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(answer, message=None, explain=UNSET))
    for name in ("dueTime", "endedTime", "nextProbeTime"):
        cells[name] = shown(cells[name])
    if explained is not None:
        if explained.waits_for is None:
            cells["explanation"] = in_sentence(explained.text)
        else:
            cells["waits for"] = f"{explained.waits_for}: {in_sentence(explained.text)}"
    if answer.message is not None:
        cells |= _message_cells(answer.message)
    if not verbose:
        cells = {name: value for name, value in cells.items() if not name.endswith("Ms")}
    Output().fields((name, _cell(value)) for name, value in cells.items() if value is not None)
    return 0


def _message_cells(message: MessageOut) -> dict[str, Any]:
    encoded, text = message.body_base64, bytes(message.body or b"").decode()
    if text.startswith('"'):
        text = msgspec.json.decode(text, type=str)
    cells: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(message, body=text, body_base64=UNSET))
    cells["expectDate"] = shown(message.expect_date)
    return cells if encoded is UNSET else cells | {"body": f"base64:{encoded}"}


def _cell(value: Any) -> object:
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items())
    return " ".join(value) if isinstance(value, tuple) else value


def find(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Business key.")],
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print the messages that have a business key.

    Only messages that have not ended, by due time. Exit 1 if there are none. `delayq search --key KEY --state cancelled`
    prints those that have ended.
    """
    with connect_any(redis_url, api) as client:
        found, looked, _ = searched(client, Filter(key=key))
        answer = found_out(sorted(found, key=order_of), looked)
    return print_found(answer, json, f"no message has the key {key}.")


def searched(
    client: Client, wanted: Filter, limit: int | None = None, token: str | None = None
) -> tuple[list[Found], int, str | None]:
    """Search page by page; return up to `limit` messages, the number of messages read, and the token of the next page."""
    found: list[Found] = []
    looked = 0
    while True:
        page = client.search(wanted, PAGE if limit is None else limit - len(found), token)
        found += page.messages
        looked, token = looked + page.looked, page.next_token
        if token is None or len(found) == limit:
            return found, looked, token


def print_found(answer: FoundOut, json: bool, none: str) -> int:
    """Print messages, or the sentence `none` if there are none; return the exit status."""
    found = answer.messages
    if json:
        Output().json(answer)
    elif found:
        columns = ("id", "state", "due", "attempts", "topic")
        Output().table(columns, map(_row, found))
    if not found:
        say(none)
    return 0 if found else 1


def _row(one: StateOut) -> Sequence[object]:
    topic = one.message.topic if one.message else None
    return one.id, one.state, shown(one.due_time), one.attempts, topic
