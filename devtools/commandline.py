"""The command line of ./dev. Standard library only, so that mistakes are reported before anything is installed."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

REDIS_PORT = 6389
API_PORT = 8080
REDIS_URLS = (
    "redis://", "rediss://", "unix://", "redis+sentinel://", "rediss+sentinel://", "redis+cluster://",
    "rediss+cluster://",
)  # fmt: skip
#: The brokers of ./dev brokers, each named like the extra of its target.
BROKERS = {"kafka", "rabbitmq", "rocketmq"}
MOST_WORKERS = 64
_CORES = os.cpu_count() or 1


class Layer(NamedTuple):
    """A part of the tests: pytest's expression of marks, parallel processes, the extra of delayq, and a description."""

    marks: str
    processes: int
    extra: str
    takes: str


#: The layers by the option of ./dev test that runs them. Each default test keeps a core busy; the others wait for
#: servers.
LAYERS = {
    "": Layer("not long and not release", _CORES, "test", "about 4,400 tests in 6 minutes on two cores"),
    "--long": Layer(
        "long", 2 * _CORES, "dev", "about 1,100 tests on real brokers, a browser and Spark in 16 minutes on two cores"
    ),
    "--all": Layer("", 2 * _CORES, "dev", "every test, with many more examples, in over an hour on two cores"),
}


class UsageError(Exception):
    """The command line is wrong. The message is one sentence."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('./dev ')}: {message}")


#: The extras of targets, by the scheme of their URLs.
EXTRAS: Final = {
    "http": "webhook",
    "https": "webhook",
    "kafka": "kafka",
    "rabbitmq": "rabbitmq",
    "rabbitmqs": "rabbitmq",
    "rocketmq": "rocketmq",
}
_TARGET = re.compile(r"""\btarget["']?\s*[:=]\s*["']?([a-z]+):""")


def plan(arguments: Sequence[str], cwd: str) -> tuple[set[str], list[str]]:
    """Return the extras of delayq that a command line needs, and the arguments of the Python in .venv."""
    if not arguments:
        raise UsageError("no command given; use up, brokers, test, check, bench, openapi or release")
    name, rest = arguments[0], list(arguments[1:])
    if name == "up":
        options = up_options(rest)
        data = [] if options.data is None else ["--data", str(Path(cwd, options.data))]  # the last --data applies
        extras = {"server"} if options.redis_url else {"embedded", "server"}
        extras |= {"tracing"} if os.environ.get("DELAYQ_TRACES") else set()
        return extras | ({"webhook"} if options.demo else extras_of_routes(cwd)), ["-m", "devtools.up", *rest, *data]
    if name == "test":
        layer, words = _layer_of(rest), [word for word in rest if word not in LAYERS]
        if "--all" in rest:
            os.environ["DELAYQ_TEST_ALL"] = "1"  # read by tests/support/amounts.py
        return {LAYERS[layer].extra}, ["-m", "pytest", "-ra", *_parallel(layer), *_chosen(layer, words, cwd)]
    if name == "check" and rest in ([], ["--fix"]):
        return {"test"}, ["-m", "devtools.check", *rest]
    if name == "bench" and rest:
        return {"dev"}, ["-m", "benchmarks", *rest]
    if name == "brokers" and rest[:1] in (["up"], ["down"], ["fetch"], ["--help"], ["-h"]):
        # The packages that a worker needs to send to them. The brokers themselves need no Python package.
        wanted = set(rest[1:] or BROKERS) if rest[0] == "up" else set()
        return wanted & BROKERS, ["-m", "testbed", *rest]
    if name == "release" and rest and re.fullmatch(r"\d+\.\d+\.\d+", rest[0]) and rest[1:] in ([], ["--dry-run"]):
        return {"test"}, ["-m", "devtools.release", *rest]
    if name == "openapi" and not rest:
        return {"test"}, ["-m", "devtools.check", "--openapi"]
    takes = {
        "brokers": "brokers needs up, down or fetch, then names",
        "check": "check takes only --fix",
        "bench": "bench needs a name; ./dev bench --help lists them",
        "openapi": "openapi takes no arguments",
        "release": "release needs a version such as 0.2.0, and takes only --dry-run",
    }
    raise UsageError(
        takes.get(name, f"unknown command {name!r}; use up, brokers, test, check, bench, openapi or release")
    )


def extras_of_routes(cwd: str) -> set[str]:
    """Return the extras that the targets of DELAYQ_ROUTES need: a table in JSON, or a file, which may be YAML or TOML."""
    table = os.environ.get("DELAYQ_ROUTES", "")
    with suppress(OSError, ValueError):  # it is no path
        table = Path(cwd, table).read_text(encoding="utf-8")
    return {EXTRAS[scheme] for scheme in _TARGET.findall(table) if scheme in EXTRAS}


def up_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of ./dev up. DELAYQ_API_PORT and DELAYQ_REDIS_URL replace options that are missing."""
    parser = _Parser(
        prog="./dev up",
        description="Start the API, a worker and an embedded Valkey, and keep them running. Ctrl-C stops them in "
        "order and loses nothing. The next ./dev up continues with the same data.",
        allow_abbrev=False,
    )
    parser.add_argument("--api-port", type=_port, metavar="PORT", help=f"port of the API ({API_PORT})")
    parser.add_argument("--redis-port", type=_port, metavar="PORT", help=f"port of the Valkey ({REDIS_PORT})")
    parser.add_argument("--data", metavar="DIR", help="folder of Valkey's data (./data of the checkout)")
    parser.add_argument("--ephemeral", action="store_true", help="delete the data at the end")
    parser.add_argument("--redis-url", metavar="URL", help="use this Redis or Valkey and start no server")
    parser.add_argument(
        "--workers",
        type=_count,
        default=1,
        metavar="N",
        help="number of workers (1); more than one need --zookeeper",
    )
    parser.add_argument(
        "--zookeeper", action="store_true", help="start a ZooKeeper that assigns the queues; needs Java"
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="simulate a shop: topics, a target that fails at times, a burst, a pause, a limit, dead letters; "
        "deletes the data at the end",
    )
    parser.add_argument(
        "--dev",
        action="store_true",
        help="development server: `delayq dev advance 30m` and POST /v1/dev:advance move its time; deletes the "
        "data at the end",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON, on a terminal too")
    options = parser.parse_args(arguments)
    if options.data == "":
        parser.error("--data needs the name of a folder")
    if options.demo and (options.data is not None or options.redis_url):
        parser.error("--demo deletes its data at the end; remove --data and --redis-url")
    if options.dev and (options.data is not None or options.redis_url):
        parser.error("--dev deletes its data at the end; remove --data and --redis-url")
    if options.demo and os.environ.get("DELAYQ_ROUTES"):
        parser.error("--demo has its own routes; unset DELAYQ_ROUTES")
    own_server = options.redis_port or options.data is not None or options.ephemeral or options.demo or options.dev
    if options.ephemeral and options.data is not None:
        parser.error("--ephemeral keeps no data; remove --data")
    options.ephemeral = options.ephemeral or options.demo or options.dev
    if options.redis_url and own_server:
        parser.error("--redis-url starts no server; remove --redis-port, --data and --ephemeral")
    if options.redis_url is None and not own_server:
        options.redis_url = os.environ.get("DELAYQ_REDIS_URL")
    if options.redis_url and not options.redis_url.startswith(REDIS_URLS):
        parser.error(f"a Redis URL must begin with {', '.join(REDIS_URLS[:-1])} or {REDIS_URLS[-1]}")
    if options.workers > 1 and not (options.zookeeper or os.environ.get("DELAYQ_ZOOKEEPER")):
        parser.error("several workers need a ZooKeeper that assigns the queues; add --zookeeper")
    if options.api_port is None and (port := os.environ.get("DELAYQ_API_PORT")):
        try:
            options.api_port = _port(port)
        except argparse.ArgumentTypeError as error:
            parser.error(f"DELAYQ_API_PORT: {error}")
    return options


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_WORKERS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers from 1 to {MOST_WORKERS}")


def announcement(arguments: Sequence[str], cwd: str) -> str:
    """Describe the tests that ./dev test is about to run, and their duration. Empty for other commands and chosen
    tests.
    """
    name, rest = arguments[0], arguments[1:]
    if name != "test" or any(word not in LAYERS for word in rest):
        return ""
    return f"running {LAYERS[_layer_of(rest)].takes}"


def _layer_of(words: Sequence[str]) -> str:
    """Return the option that chooses a layer. Raises UsageError for two of them."""
    options = [word for word in words if word in LAYERS]
    if len(options) > 1:
        raise UsageError(f"test takes only one of {' and '.join(options)}; --all includes --long")
    return options[0] if options else ""


def _parallel(layer: str) -> list[str]:
    """Return pytest's options for parallel processes. A caller's `-n 0` comes later, so it wins.

    The tests of a file stay together in one process. The tests of an `xdist_group` do too, because they share servers
    that start slowly. If a process crashes, the run ends. Otherwise
    xdist would start another process, and the run would hang.
    """
    return ["-n", str(LAYERS[layer].processes), "--dist", "loadgroup", "--max-worker-restart", "0"]


def _chosen(layer: str, words: Sequence[str], cwd: str) -> list[str]:
    """Return pytest's arguments. A path without an option runs all tests in it, whatever their layer."""
    named = any(_is_path(word, cwd) for word in words)
    marks = "" if named and not layer else LAYERS[layer].marks
    paths = [_absolute(word, cwd) if _is_path(word, cwd) else word for word in words]
    return [*(("-m", marks) if marks else ()), *paths]


def _is_path(word: str, cwd: str) -> bool:
    path = word.partition("::")[0]
    return not path.startswith("-") and Path(cwd, path).exists()


def _absolute(word: str, cwd: str) -> str:
    """Return a test's path for pytest, which runs at the root of the checkout."""
    path, separator, name = word.partition("::")
    return f"{Path(cwd, path)}{separator}{name}"
