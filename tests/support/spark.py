"""What tests need of Spark beside a session: whether it can run here, and a standalone cluster of two hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from delayq.base.errors import ConfigError
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.process import ServerProcess
from tests.house.processes import ROOT

#: The master lives on the first of them, too.
HOSTS: Final = (LOCALHOST, "127.0.0.2")
START_SECONDS: Final = 60.0


def need_java() -> None:
    """Skip the test where Spark cannot run, saying why and how to get what is missing."""
    pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")
    from delayq.spark.session import check_java

    try:
        check_java()
    except ConfigError as error:
        pytest.skip(str(error))


def environment(**more: str) -> dict[str, str]:
    """That of a process that uses this tree, without the settings of whoever runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DELAYQ_", "PYSPARK_", "SPARK_"))}
    path = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    return env | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable} | more


def spark_home() -> Path:
    """The folder of Spark's programs and jars."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and a worker of one core on each of two hosts; the master's URL."""
    need_java()
    home = spark_home()
    port = free_port()
    url = f"spark://{HOSTS[0]}:{port}"
    deploy = "org.apache.spark.deploy"

    def process(name: str, host: str, words: list[str]) -> ServerProcess:
        env: Mapping[str, str] = environment(
            SPARK_LOCAL_IP=host,
            SPARK_HOME=str(home),
            SPARK_SCALA_VERSION="2.13",
            SPARK_DAEMON_MEMORY="192m",
            SPARK_DAEMON_JAVA_OPTS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        )
        command = [str(home / "bin" / "spark-class"), *words, "--host", host, "--webui-port", "0"]
        return ServerProcess(name, command, log=folder / f"{name}.log", environment=env)

    with ExitStack() as stack:
        master = process("master", HOSTS[0], [f"{deploy}.master.Master", "--port", str(port)])
        workers = [
            process(
                f"worker-{number}",
                host,
                [f"{deploy}.worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host), url],
            )
            for number, host in enumerate(HOSTS)
        ]
        for one in (master, *workers):
            stack.callback(one.kill)
            one.start()
        for one, said in (
            (master, "I have been elected leader"),
            *((one, "Successfully registered") for one in workers),
        ):
            one.wait(lambda one=one, said=said: said in one.tail(200), START_SECONDS)  # type: ignore[misc]  # no default in mypy's lambda
        yield url
