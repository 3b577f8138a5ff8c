"""All commands. A failed command prints one sentence on stderr and exits with a status, never with a traceback.

Exit statuses:
- 0: done.
- 1: not found, not (all) cancelled, not confirmed, rows rejected or different, or a failed check.
- 2: invalid options or input, a conflict, or no Redis.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from delayq.base.errors import Conflict, DelayqError, InvalidMessage
from delayq.base.stop_signals import stop_signals
from delayq.base.terminal import say
from delayq.cli.options import BadUse, in_namespace
from delayq.telemetry.ending import say_last

LONGEST_SENTENCE = 1_000
#: The only command of two words whose first word is itself a command with an argument.
UNDO = "backfill undo"
VERSION = "--version"
BODY_FILE = "--body-file"

#: The function of each command. Its module is imported only when the command is called, because importing all modules
#: takes longer than most commands. --help imports all of them.
_COMMANDS: Final[Mapping[str, str | tuple[str, Mapping[str, str]]]] = {
    "schedule": "schedule:schedule",
    "cancel": "messages:cancel",
    "reschedule": "messages:reschedule",
    "deliver-now": "messages:deliver_now",
    "get": "messages:get",
    "explain": "messages:explain",
    "find": "messages:find",
    "search": "search:search",
    "count": "search:count",
    "forecast": "search:forecast",
    "status": "status:status",
    "overview": "status:overview",
    "me": "status:me",
    "queues": "queues:queues",
    "nodes": "queues:nodes",
    "routes": "queues:routes",
    "dead-letters": (
        "List, redrive and discard dead letters.",
        {
            "list": "dead_letters:list_",
            "groups": "dead_letters:groups",
            "redrive": "dead_letters:redrive",
            "discard": "dead_letters:discard",
        },
    ),
    "audit": "audit:audit",
    "pause": "topics:pause",
    "resume": "topics:resume",
    "topics": "topics:topics",
    "policies": (
        "List, show, put and delete policies of topics.",
        {"list": "policies:list_", "show": "policies:show", "put": "policies:put", "delete": "policies:delete"},
    ),
    "era": (
        "Show the era of the owners' epochs, or begin a new one.",
        {"show": "era:show", "bump": "era:bump"},
    ),
    "dev": ("Move the time of ./dev up --dev, for your own tests.", {"advance": "dev:advance"}),
    "bridge": ("Take messages over from other systems.", {"rabbitmq": "bridge:rabbitmq"}),
    "backfill": "backfill:backfill",
    UNDO: "undo:undo",
    "reconcile": "reconcile:reconcile",
    "export": "export:export",
    "api-keys": (
        "Create, list and revoke API keys.",
        {"new": "api_keys:new", "list": "api_keys:list_", "revoke": "api_keys:revoke"},
    ),
    "reshard": "reshard:reshard",
    "receive": "receive:receive",
    "consumers": "consumers:consumers",
    "delete-group": "consumers:delete",
    "tail": "tail:tail",
    "doctor": "doctor:doctor",
    "api": "services:api",
    "worker": "services:worker",
    "coordinator": "services:coordinator",
    "version": "version:version",
}

#: The option or argument for each field that an error names, if the command has no option of the same name.
_OPTIONS = {
    "id": "id", "topic": "TOPIC", "body": "BODY", "key": "KEY", "match": "MATCH", "name": "NAME", "group": "GROUP",
    "delayTime": "--delay", "expectDate": "--at", "delayLevel": "--level", "keys": "--key", "properties": "--property",
}  # fmt: skip


def _group(help: str) -> typer.Typer:
    return typer.Typer(help=help, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _app(wanted: str) -> typer.Typer:
    """Return the command line with the wanted command.

    If no command is named `wanted`, as for --help, it has all commands.
    """
    app = _group("Schedule delayed messages, manage them, and watch the service.")
    app.callback()(_options)
    for name, what in _COMMANDS.items():
        if wanted in (VERSION, *_COMMANDS) and name != wanted:
            continue
        if isinstance(what, str):
            app.command(name)(_function(what))
            continue
        help, parts = what
        group = _group(help)
        group.callback()(_nothing)  # without a callback, a group of one command would become that command
        for part, place in parts.items():
            group.command(part)(_function(place))
        app.add_typer(group, name=name)
    return app


def _function(place: str) -> Callable[..., int]:
    module, _, name = place.partition(":")
    return in_namespace(getattr(import_module(f"delayq.cli.commands.{module}"), name))


def _print_version(given: bool) -> None:
    if given:
        from delayq.cli.commands.version import version

        raise typer.Exit(version())


def _options(
    version: Annotated[
        bool, typer.Option(VERSION, callback=_print_version, is_eager=True, help="Print the version of delayq.")
    ] = False,
) -> None:
    """The options before a command."""


def _nothing() -> None:
    """Give a group no options of its own."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    if argv is None:
        _speak_utf8()
        _open_closed_streams()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="backslashreplace")  # the answer to a prompt may contain any bytes
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may be unable to show a character
    called = None
    try:
        args = list(sys.argv[1:] if argv is None else argv)
        for before, arg in zip(["", *args], args, strict=False):
            if before != BODY_FILE and not arg.startswith(f"{BODY_FILE}="):  # a file name need not be UTF-8
                _check_text(arg)
        if args[:2] == UNDO.split():
            args[:2] = [UNDO]
        command = get_command(_app(args[0] if args else ""))
        called = _called(command, args)
        with command.make_context("delayq", args) as context:  # command() would print errors in its own format
            code: int = command.invoke(context)
        sys.stdout.flush()
        return code
    except typer.Exit as end:  # --help
        return end.exit_code
    except KeyboardInterrupt:
        if stop_signals.asked is None:
            return 130
        if stop_signals.asked is signal.SIGHUP:  # the terminal is closed
            _write_no_more()
        say_last(f"delayq: stopped by {stop_signals.asked.name}")
        return 128 + stop_signals.asked
    except BrokenPipeError:  # the reader has stopped reading, as `head` does
        _write_no_more()
        return 0
    except OSError as error:
        _write_no_more()
        return _refuse(f"cannot write the output: {error.strerror or error}")
    except typer.TyperException as error:
        return _refuse(_of_usage(error))
    except DelayqError as error:
        return _refuse(_of_error(error, called))


def _speak_utf8() -> None:
    """Restart in Python's UTF-8 mode if arguments, paths and output have another encoding.

    Python decodes arguments by the locale. Without LANG that is ASCII, and a topic such as "größe" could not be read.
    """
    if sys.getfilesystemencoding() != "utf-8":
        command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONUTF8": "1"})


def _open_closed_streams() -> None:
    """Reopen each standard stream that is closed (`>&-`) on its own descriptor.

    Otherwise a connection would get the descriptor, and Python would have no stream to write to. Output to a closed
    stdout fails, as on a full disk. Input is empty, and text written to a closed stderr is lost.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # it stays open
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # the same
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # the same


def _write_no_more() -> None:
    """Close the output, because Python would otherwise write again when it exits, and print an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_text(arg: str) -> None:
    try:
        arg.encode()
    except UnicodeEncodeError:
        raise BadUse("an argument is not UTF-8; pass a body of bytes with --body-file") from None


def _of_usage(error: typer.TyperException) -> str:
    text = error.format_message()
    if text == "Missing command.":
        text = "no command given; delayq --help lists all commands"
    if text.startswith("No such option: --api"):
        text = "the HTTP API has no endpoint for this command: remove --api; it needs --redis-url"
    text = text[:1].lower() + text[1:]
    return re.sub(r"\.\s+(\w)", lambda match: "; " + match.group(1).lower(), text)


def _called(command: Any, args: Sequence[str]) -> Any:
    """Return the command that is called, or the command inside the called group."""
    for arg in args:
        if arg in getattr(command, "commands", {}):
            command = command.commands[arg]
    return command


def _of_error(error: DelayqError, called: Any = None) -> str:
    if isinstance(error, InvalidMessage):
        hyphens = "--" + re.sub("[A-Z]", lambda match: "-" + match.group().lower(), error.field)
        options = {name for one in getattr(called, "params", ()) for name in one.opts}
        return f"{hyphens if hyphens in options else _OPTIONS.get(error.field, hyphens)}: {error.reason}"
    text = str(error)
    id = getattr(error, "id", None)  # the id of a message that may have been scheduled
    if isinstance(id, str) and not isinstance(error, Conflict):
        text = f"{text.rstrip('.')}; to repeat the call safely, add --id {id}"
    return text


def _refuse(text: str) -> int:
    sentence = " ".join(text.split()).rstrip(".")
    if len(sentence) > LONGEST_SENTENCE:
        sentence = sentence[:LONGEST_SENTENCE] + " …"
    say(sentence if sentence.endswith("?") else f"{sentence}.")
    return 2
