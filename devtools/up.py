"""./dev up: an embedded Valkey, workers and the API on this machine, kept running until a signal."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import threading
import time
import urllib.parse
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

from delayq.cli.started_server import noted
from delayq.embedded import EmbeddedServer, EmbeddedServerError
from delayq.embedded.processes import LOCALHOST, free_port, port_is_free
from delayq.errors import MissingExtra
from devtools.commandline import API_PORT, REDIS_PORT, UsageError, up_options
from devtools.demo import get_status, trickle
from devtools.supervise import GaveUp, Program, Stopped, Supervisor, Valkey, ZooKeeper, say
from testbed.errors import ServerError, ServerMissing
from testbed.zookeeper import ZooKeeperServer

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 60.0
LOAD_SECONDS = 600.0  # a Valkey with a large append-only file
# The order in which things stop, and what each may take: requests that run, sends that run.
API_PATIENCE = 10.0
WORKER_PATIENCE = 15.0


def main() -> int:
    """Start all, keep them alive, stop them in order."""
    supervisor = Supervisor()
    supervisor.listen()
    stopped = threading.Event()
    try:
        options = up_options(sys.argv[1:])
        run(options, supervisor, stopped)
    except Stopped:
        say("stopping")
        return 0
    except (UsageError, EmbeddedServerError, MissingExtra, ServerMissing, ServerError) as error:
        say(str(error))
        return 2
    except GaveUp as error:
        say(f"{error}\ndev: stopping everything")
        return 1
    finally:
        stopped.set()
        supervisor.stop()


def run(options: argparse.Namespace, supervisor: Supervisor, stopped: threading.Event) -> NoReturn:
    """Start everything and watch it."""
    api_port = _port(options.api_port, API_PORT, "--api-port")
    redis_url, data = options.redis_url, None
    if not redis_url:
        server = _server(options)
        redis_url, data = server.url, server.data_dir
        supervisor.start(Valkey(server))
        if not supervisor.wait_until(server.answers, LOAD_SECONDS):
            raise GaveUp(f"Valkey does not answer; its log ends:\n{server.log_tail()}")
    env = {
        **os.environ,
        "DELAYQ_REDIS_URL": redis_url,
        "DELAYQ_API_HOST": LOCALHOST,
        "DELAYQ_API_PORT": str(api_port),
    }
    if options.zookeeper:
        zookeeper = ZooKeeperServer(data_dir=data / "zookeeper" if data is not None and not options.ephemeral else None)
        supervisor.start(ZooKeeper(zookeeper))
        env["DELAYQ_ZOOKEEPER"] = zookeeper.hosts
    for number in range(1, options.workers + 1):
        name, own = "the worker", env
        if options.workers > 1:
            name, own = f"worker {number}", {**env, "DELAYQ_NODE": f"worker-{number}"}
        supervisor.start(Program(name, [sys.executable, "-m", "workers"], env=own, cwd=ROOT, patience=WORKER_PATIENCE))
    supervisor.start(Program("the API", [sys.executable, "-m", "api"], env=env, cwd=ROOT, patience=API_PATIENCE))
    api = f"http://{LOCALHOST}:{api_port}"
    if not supervisor.wait_until(lambda: get_status(f"{api}/readyz")[0] == 200, READY_SECONDS):
        status, text = get_status(f"{api}/readyz")
        raise GaveUp(f"not ready after {READY_SECONDS:.0f} s: {api}/readyz answers {status or 'nothing'}: {text}")
    with nullcontext(False) if options.redis_url else noted(redis_url) as found:
        print(banner(api, redis_url, data, options, env.get("DELAYQ_ZOOKEEPER", ""), found=found), flush=True)
        if options.demo:
            threading.Thread(target=trickle, args=(api, stopped), daemon=True).start()
        supervisor.wait_until(stopped.is_set)
    raise Stopped


def banner(
    api: str, redis_url: str, data: Path | None, options: argparse.Namespace, zookeeper: str, *, found: bool
) -> str:
    """What runs where, and two lines to paste; `found` is whether the command line finds this Redis by itself."""
    if options.redis_url:
        redis = f"{_without_password(redis_url)} (yours; it decides what is kept)"
    elif options.ephemeral:
        redis = f"{redis_url} (embedded Valkey; its data go when you stop)"
    else:
        redis = f"{redis_url} (embedded Valkey; its data stay in {data})"
    topics = "Redis Streams in that Redis, each named like its topic"
    if os.environ.get("DELAYQ_ROUTES"):
        topics = "where DELAYQ_ROUTES says; the lines below want demo to be a Redis Stream in that Redis"
    message = '{"topic": "demo", "body": "hello", "delayTime": "5s"}'
    tail = f"{shlex.quote(str(Path(sys.executable).parent / 'delayq'))} tail demo"
    if redis_url != os.environ.get("DELAYQ_REDIS_URL", redis_url if found else ""):
        tail = f"DELAYQ_REDIS_URL={shlex.quote(_without_password(redis_url))} {tail}"
    workers = f"{options.workers}, queues spread by the ZooKeeper at {zookeeper}" if zookeeper else "1, with all queues"
    return f"""
delayq is ready.

  API      {api}, its documentation {api}/docs
  Redis    {redis}
  workers  {workers}
  topics   {topics}

Watch a topic:
  {tail}
Schedule a message:
  curl -s {api}/v1/messages -H 'content-type: application/json' -d '{message}'

Ctrl-C stops everything in order.
"""


def _server(options: argparse.Namespace) -> EmbeddedServer:
    data = None if options.ephemeral else Path(options.data or ROOT / "data")
    try:
        server = EmbeddedServer(data_dir=data, port=options.redis_port or REDIS_PORT)
        server.take_over()  # first, for a server left on this data may hold the port
    except OSError as error:
        raise UsageError(f"the data folder cannot be used: {error}") from None
    try:
        server.port = _port(options.redis_port, REDIS_PORT, "--redis-port")
    except UsageError:
        server.stop()  # a temporary folder is not left behind
        raise
    return server


def _port(asked: int | None, usual: int, option: str) -> int:
    if asked is None:
        return usual if port_is_free(usual) else free_port()
    deadline = time.monotonic() + 3.0  # what an earlier run left behind may be ending now
    while not port_is_free(asked):
        if time.monotonic() > deadline:
            raise UsageError(f"port {asked} is in use; give another one by {option}")
        time.sleep(0.1)
    return asked


def _without_password(url: str) -> str:
    password = urllib.parse.urlsplit(url).password
    url = url.replace(f":{password}@", ":<password>@") if password else url
    return re.sub(r"(password=)[^&]+", r"\1<password>", url)  # among the options: of the sentinels


if __name__ == "__main__":
    sys.exit(main())
