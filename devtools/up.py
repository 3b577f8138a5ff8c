"""./dev up: run an embedded Valkey, workers and the API on this machine until a signal."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import threading
import time
import urllib.parse
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from rich.console import Console
from rich.text import Text

from delayq.base.errors import MissingExtra
from delayq.base.progress import Progress
from delayq.cli.started_server import noted
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer, EmbeddedServerError
from delayq.embedded.processes import LOCALHOST, port_is_free
from delayq.store.keys import Keys
from delayq.testing.service import make_development_server
from devtools.calls import get_status
from devtools.commandline import API_PORT, REDIS_PORT, UsageError, up_options
from devtools.demo import live
from devtools.endpoint import Endpoint
from devtools.screen import Screen
from devtools.supervise import GaveUp, Program, Stopped, Supervisor, Valkey, ZooKeeper
from testbed.errors import ServerError, ServerMissing
from testbed.zookeeper import ZooKeeperServer

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 60.0
LOAD_SECONDS = 600.0  # a Valkey with a large append-only file
# The processes stop in this order. Each value is the longest time: for current requests, then for current sends.
API_PATIENCE = 10.0
#: The number of ports to try when the usual one is in use.
NEXT_PORTS: Final = 50
WORKER_PATIENCE = 15.0
#: The networks to which webhooks of a development server may go. Elsewhere delayq refuses them.
LOOPBACK: Final = "127.0.0.0/8 ::1/128"
#: The same lines as in README.md.
PASTE: Final = ("schedule hello world --delay 2s", "tail hello --from-start")


def main() -> int:
    """Start all processes, keep them alive, and stop them in order."""
    options = up_options(sys.argv[1:])  # ./dev has checked the options already
    screen = Screen(json=options.json)
    supervisor = Supervisor(screen)
    supervisor.listen()
    stopped = threading.Event()
    try:
        run(options, supervisor, screen, stopped)
    except Stopped:
        stopped.set()
        screen.stopping()
        supervisor.stop()
        screen.stopped()
        return 0
    except (UsageError, EmbeddedServerError, MissingExtra, ServerMissing, ServerError) as error:
        screen.say(str(error), "error")
        return 2
    except GaveUp as error:
        screen.say(str(error), "error")
        screen.stopping()
        return 1
    finally:
        stopped.set()
        supervisor.stop()


def run(options: argparse.Namespace, supervisor: Supervisor, screen: Screen, stopped: threading.Event) -> NoReturn:
    """Start all processes and watch them."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(Endpoint()) if options.demo else None
        with screen.doing("starting") as step:
            up = _start(options, supervisor, screen, endpoint, step)
        found = not options.redis_url and stack.enter_context(noted(up.redis_url))
        Console(markup=False, emoji=False, highlight=False).print(_banner(up, options, found=found), soft_wrap=True)
        sys.stdout.flush()
        if options.demo:
            threading.Thread(target=live, args=(up.api, stopped, screen), daemon=True).start()
        supervisor.wait_until(stopped.is_set)
    raise Stopped


class Up(NamedTuple):
    """The addresses and folders of the running processes."""

    api: str
    redis_url: str
    data: Path | None
    zookeeper: str


def _start(
    options: argparse.Namespace, supervisor: Supervisor, screen: Screen, endpoint: Endpoint | None, step: Progress
) -> Up:
    api_port = _port(options.api_port, API_PORT, "--api-port", screen)
    redis_url, data = options.redis_url, None
    own_url = redis_url  # for the processes that are started here
    if not redis_url:
        server = _server(options, screen)
        redis_url, own_url, data = server.url, server.socket_url, server.data_dir
        step.show("Valkey, while it loads its data")
        supervisor.start(Valkey(server))
        if not supervisor.wait_until(server.answers, LOAD_SECONDS):
            raise GaveUp(f"Valkey does not answer; the end of its log:\n{server.log_tail()}")
        if options.dev:
            make_development_server(server, Keys(load_settings().namespace))
    env = {
        **os.environ,
        "DELAYQ_REDIS_URL": own_url,
        "DELAYQ_API_HOST": LOCALHOST,
        "DELAYQ_API_PORT": str(api_port),
    }
    if endpoint is not None:
        env["DELAYQ_ROUTES"] = endpoint.routes()
    elif (table := os.environ.get("DELAYQ_ROUTES", "")) and not table.lstrip().startswith(("[", "{")):
        env["DELAYQ_ROUTES"] = os.path.abspath(table)  # the processes run in another folder
    if not options.redis_url:  # a development server of its own: webhooks may go to this machine
        env["DELAYQ_EGRESS_ALLOW"] = f"{os.environ.get('DELAYQ_EGRESS_ALLOW', '')} {LOOPBACK}".strip()
    if options.zookeeper:
        step.show("ZooKeeper; the first start downloads its classes")
        zookeeper = ZooKeeperServer(data_dir=data / "zookeeper" if data is not None and not options.ephemeral else None)
        supervisor.start(ZooKeeper(zookeeper))
        env["DELAYQ_ZOOKEEPER"] = zookeeper.hosts

    def start(name: str, module: str, env: dict[str, str], patience: float) -> None:
        command = [sys.executable, "-m", module]
        supervisor.start(Program(name, command, env=env, cwd=ROOT, patience=patience, screen=screen))

    step.show("the workers and the API")
    for number in range(1, options.workers + 1):
        name = "worker" if options.workers == 1 else f"worker {number}"
        start(name, "workers", {**env, "DELAYQ_NODE": f"worker-{number}"}, WORKER_PATIENCE)
    start("API", "api", env, API_PATIENCE)
    api = f"http://{LOCALHOST}:{api_port}"
    if not supervisor.wait_until(lambda: get_status(f"{api}/readyz")[0] == 200, READY_SECONDS):
        status, text = get_status(f"{api}/readyz")
        raise GaveUp(f"not ready after {READY_SECONDS:.0f} s; {api}/readyz answers {status or 'nothing'}: {text}")
    return Up(api, redis_url, data, env.get("DELAYQ_ZOOKEEPER", ""))


def _banner(up: Up, options: argparse.Namespace, *, found: bool) -> Text:
    """Return the addresses, and two lines to paste. With `found`, the command line finds this Redis by itself."""
    if options.redis_url:
        redis = f"{_without_password(up.redis_url)} (your own server)"
    elif options.ephemeral:
        redis = f"{up.redis_url} (embedded Valkey; its data are deleted at the end)"
    else:
        redis = f"{up.redis_url} (embedded Valkey; its data are in {up.data})"
    topics = "Redis Streams in that Redis, each named like its topic"
    if options.demo:
        topics = "the shop's routes: streams in that Redis, and webhooks of this process"
    elif os.environ.get("DELAYQ_ROUTES"):
        topics = "from DELAYQ_ROUTES; the lines below need a route of hello to a Redis Stream in that Redis"
    workers = (
        f"{options.workers}; the ZooKeeper at {up.zookeeper} assigns the queues"
        if up.zookeeper
        else "1, with all queues"
    )
    command = shlex.quote(str(Path(sys.executable).parent / "delayq"))
    if up.redis_url != os.environ.get("DELAYQ_REDIS_URL", up.redis_url if found else ""):
        command = f"DELAYQ_REDIS_URL={shlex.quote(_without_password(up.redis_url))} {command}"
    runs = [
        ("API", f"{up.api}, documentation: {up.api}/docs"),
        ("Redis", redis),
        ("workers", workers),
        ("topics", topics),
    ]
    if os.environ.get("DELAYQ_CONSOLE") != "no":
        runs.insert(0, ("console", f"{up.api}/console/"))
    if options.dev:
        runs.append(("time", f"moved by `{command} dev advance 30m` and by POST {up.api}/v1/dev:advance"))
    text = Text.assemble("\n", ("delayq is ready.", "bold green"), "\n\n")
    for name, what in runs:
        text.append(f"  {name:<7}  ", "bold").append(f"{what}\n")
    text.append("\nIn another terminal, schedule a message for two seconds later and watch its topic:\n\n")
    for words in PASTE:
        text.append(f"  {command} {words}\n", "cyan")
    return text.append("\nCtrl-C stops everything in order.\n")


def _server(options: argparse.Namespace, screen: Screen) -> EmbeddedServer:
    data = None if options.ephemeral else Path(options.data or ROOT / "data")
    try:
        server = EmbeddedServer(data_dir=data, port=options.redis_port or REDIS_PORT)
        server.take_over()  # before the port is checked: a server left on this data may hold the port
    except OSError as error:
        raise UsageError(f"cannot use the data folder: {error}") from None
    try:
        server.port = _port(options.redis_port, REDIS_PORT, "--redis-port", screen)
    except UsageError:
        server.stop()  # so that no temporary folder is left behind
        raise
    return server


def _port(asked: int | None, usual: int, option: str, screen: Screen) -> int:
    """Return the requested port, or the usual one, or the next free one with a message."""
    if asked is None:
        found = next((port for port in range(usual, usual + NEXT_PORTS) if port_is_free(port)), None)
        if found is None:
            raise UsageError(f"ports {usual} to {usual + NEXT_PORTS - 1} are in use; choose a free one with {option}")
        if found != usual:
            screen.say(f"port {usual} is in use; using {found}, or choose one with {option}")
        return found
    deadline = time.monotonic() + 3.0  # processes of an earlier run may be ending now
    while not port_is_free(asked):
        if time.monotonic() > deadline:
            raise UsageError(f"port {asked} is in use; choose another one with {option}")
        time.sleep(0.1)
    return asked


def _without_password(url: str) -> str:
    password = urllib.parse.urlsplit(url).password
    url = url.replace(f":{password}@", ":<password>@") if password else url
    return re.sub(r"(password=)[^&]+", r"\1<password>", url)  # in the options of the URL: the password of the sentinels


if __name__ == "__main__":
    sys.exit(main())
