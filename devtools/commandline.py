"""The command line of ./dev. Standard library only: a slip is told before anything is installed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

REDIS_PORT = 6389
API_PORT = 8080
REDIS_URLS = (
    "redis://", "rediss://", "unix://", "redis+sentinel://", "rediss+sentinel://", "redis+cluster://",
    "rediss+cluster://",
)  # fmt: skip
#: What ./dev brokers can start, each named like the extra of its target.
BROKERS = {"kafka", "rabbitmq", "rocketmq"}
MOST_WORKERS = 64
_CORES = os.cpu_count() or 1


class Layer(NamedTuple):
    """A part of the tests: pytest's expression of marks, processes at a time, the extra of delayq, and what it takes."""

    marks: str
    processes: int
    extra: str
    takes: str


#: The layers by the option of ./dev test that runs them. Default tests keep a core busy each; the others wait for servers.
LAYERS = {
    "": Layer("not long and not release", _CORES, "test", "about 2,500 tests in 4 minutes on two cores"),
    "--long": Layer(
        "long", 2 * _CORES, "dev", "about 700 tests on real brokers, a browser and Spark in 10 minutes on two cores"
    ),
    "--all": Layer("", 2 * _CORES, "dev", "every test, with many more examples, in over an hour on two cores"),
}
BENCHMARKS = (
    "schedule, http, access, drain, steady, lateness, burst, growth, memory, idle, failover, scale, targets, spark, "
    "peers, controls, console or all"
)


class UsageError(Exception):
    """The command line is wrong; the message is one sentence."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('./dev ')}: {message}")


def plan(arguments: Sequence[str], cwd: str) -> tuple[set[str], list[str]]:
    """What a command line needs: the extras of delayq, and the arguments of the Python in .venv."""
    if not arguments:
        raise UsageError("say what to do: up, brokers, test, check, bench or openapi")
    name, rest = arguments[0], list(arguments[1:])
    if name == "up":
        options = up_options(rest)
        data = [] if options.data is None else ["--data", str(Path(cwd, options.data))]  # the last one counts
        extras = {"server"} if options.redis_url else {"embedded", "server"}
        return extras | ({"webhook"} if options.demo else set()), ["-m", "devtools.up", *rest, *data]
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
        # What a worker needs to send to them; what they themselves need is no package of Python.
        wanted = set(rest[1:] or BROKERS) if rest[0] == "up" else set()
        return wanted & BROKERS, ["-m", "testbed", *rest]
    if name == "openapi" and not rest:
        return {"test"}, ["-m", "devtools.check", "--openapi"]
    takes = {
        "brokers": "brokers needs up, down or fetch, and takes names",
        "check": "check takes --fix and nothing else",
        "bench": f"bench needs a name: {BENCHMARKS}",
        "openapi": "openapi takes nothing more",
    }
    raise UsageError(takes.get(name, f"there is no {name!r}: use up, brokers, test, check, bench or openapi"))


def up_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of ./dev up; DELAYQ_API_PORT and DELAYQ_REDIS_URL stand in for those not given."""
    parser = _Parser(
        prog="./dev up",
        description="Start the API, a worker node and an embedded Valkey, and keep them running. "
        "Ctrl-C stops them in order and loses nothing; the next ./dev up goes on where this one was.",
        allow_abbrev=False,
    )
    parser.add_argument("--api-port", type=_port, metavar="PORT", help=f"port of the API ({API_PORT})")
    parser.add_argument("--redis-port", type=_port, metavar="PORT", help=f"port of the Valkey ({REDIS_PORT})")
    parser.add_argument("--data", metavar="DIR", help="folder of the Valkey's data (./data of the checkout)")
    parser.add_argument("--ephemeral", action="store_true", help="throw the data away at the end")
    parser.add_argument("--redis-url", metavar="URL", help="use this Redis or Valkey and start none")
    parser.add_argument(
        "--workers",
        type=_count,
        default=1,
        metavar="N",
        help="how many worker nodes (1); more than one need --zookeeper",
    )
    parser.add_argument(
        "--zookeeper", action="store_true", help="start a ZooKeeper, which spreads the queues; needs Java"
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="let it live, to look at: a shop's topics, a target that is closed at times, a burst ahead, a pause, a limit, "
        "dead letters; at most 50 messages a second, and all data are thrown away at the end",
    )
    parser.add_argument(
        "--dev",
        action="store_true",
        help="for tests of your programs: `delayq dev advance 30m` and POST /v1/dev:advance move the time of this delayq; all "
        "data are thrown away at the end",
    )
    parser.add_argument("--json", action="store_true", help="show events as JSON also on a terminal, not in words")
    options = parser.parse_args(arguments)
    if options.data == "":
        parser.error("--data needs the name of a folder")
    if options.demo and (options.data is not None or options.redis_url):
        parser.error("--demo lives in a Valkey that is thrown away, so it does not go with --data or --redis-url")
    if options.dev and (options.data is not None or options.redis_url):
        parser.error(
            "--dev moves the time of a Valkey that is thrown away, so it does not go with --data or --redis-url"
        )
    if options.demo and os.environ.get("DELAYQ_ROUTES"):
        parser.error("--demo has routes of its own, so it does not go with DELAYQ_ROUTES")
    own_server = options.redis_port or options.data is not None or options.ephemeral or options.demo or options.dev
    if options.ephemeral and options.data is not None:
        parser.error("--ephemeral keeps no data, so it does not go with --data")
    options.ephemeral = options.ephemeral or options.demo or options.dev
    if options.redis_url and own_server:
        parser.error("--redis-url starts no server, so it does not go with --redis-port, --data or --ephemeral")
    if options.redis_url is None and not own_server:
        options.redis_url = os.environ.get("DELAYQ_REDIS_URL")
    if options.redis_url and not options.redis_url.startswith(REDIS_URLS):
        parser.error(f"a Redis URL begins with {', '.join(REDIS_URLS[:-1])} or {REDIS_URLS[-1]}")
    if options.workers > 1 and not (options.zookeeper or os.environ.get("DELAYQ_ZOOKEEPER")):
        parser.error("several workers need a ZooKeeper that spreads the queues: add --zookeeper")
    if options.api_port is None and (port := os.environ.get("DELAYQ_API_PORT")):
        try:
            options.api_port = _port(port)
        except argparse.ArgumentTypeError as error:
            parser.error(f"DELAYQ_API_PORT: {error}")
    return options


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port, 1 to 65535")


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_WORKERS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers, 1 to {MOST_WORKERS}")


def announcement(arguments: Sequence[str], cwd: str) -> str:
    """What ./dev test is about to run, and how long that takes; empty for other commands and for chosen tests."""
    name, rest = arguments[0], arguments[1:]
    if name != "test" or any(word not in LAYERS for word in rest):
        return ""
    return f"running {LAYERS[_layer_of(rest)].takes}"


def _layer_of(words: Sequence[str]) -> str:
    """The option that chooses a layer; raises UsageError for two of them."""
    options = [word for word in words if word in LAYERS]
    if len(options) > 1:
        raise UsageError(f"test takes one of {' and '.join(options)}: --all includes --long")
    return options[0] if options else ""


def _parallel(layer: str) -> list[str]:
    """How many processes run tests at a time; a caller's `-n 0` comes later, so it wins.

    A file's tests stay together in one process, and so do those of an `xdist_group`, which share what takes long to start.
    """
    return ["-n", str(LAYERS[layer].processes), "--dist", "loadgroup"]


def _chosen(layer: str, words: Sequence[str], cwd: str) -> list[str]:
    """pytest's arguments. A path without an option runs all tests in it, whatever their layer."""
    named = any(_is_path(word, cwd) for word in words)
    marks = "" if named and not layer else LAYERS[layer].marks
    paths = [_absolute(word, cwd) if _is_path(word, cwd) else word for word in words]
    return [*(("-m", marks) if marks else ()), *paths]


def _is_path(word: str, cwd: str) -> bool:
    path = word.partition("::")[0]
    return not path.startswith("-") and Path(cwd, path).exists()


def _absolute(word: str, cwd: str) -> str:
    """A test named from where the caller stands; pytest runs at the root of the checkout."""
    path, separator, name = word.partition("::")
    return f"{Path(cwd, path)}{separator}{name}"
