"""A RabbitMQ of one's own: Debian's program as a child process, with its data in a folder of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from delayq.embedded.processes import LOCALHOST, free_port, port_is_free
from testbed.errors import ServerError, ServerMissing
from testbed.process import Server, ServerProcess

#: The same for each broker: it is known only to its own epmd, and the data lie under this name.
NODE = "delayq@localhost"
START_SECONDS = 300.0
CONTROL_SECONDS = 300.0
#: Where Debian has the scripts themselves; those on the PATH work for root and the user `rabbitmq` only.
_DEBIAN = Path("/usr/lib/rabbitmq/bin")
_HOW = (
    "install RabbitMQ (apt install rabbitmq-server, which on Debian also starts a service of that name: "
    "systemctl disable --now rabbitmq-server ends it)"
)
MEMORY = "1GB"
_FIXED = {
    "num_acceptors.tcp": "2",
    "disk_free_limit.absolute": "1MB",
    "vm_memory_high_watermark.absolute": MEMORY,
    "log.console": "true",
    "log.console.level": "info",
    "log.file": "false",
}


def _program(name: str) -> str:
    found = _DEBIAN / name
    path = str(found) if found.is_file() else shutil.which(name)
    if path is None:
        raise ServerMissing(f"there is no RabbitMQ on this machine: {_HOW}")
    return path


def available() -> None:
    """Raise ServerMissing if this machine has no RabbitMQ; the message explains how to get it."""
    _program("rabbitmq-server")
    if shutil.which("epmd") is None:
        raise ServerMissing(f"RabbitMQ needs Erlang's epmd: {_HOW}")


class RabbitMQ(Server):
    """One broker on 127.0.0.1, user and password 'guest', virtual host '/', no plugins. Not for several threads.

    `settings` are more lines of rabbitmq.conf, `variables` more
    of its environment, by which it may have another user. The port and the data stay the same over kill and start. Beside
    the broker runs an epmd of its own, Erlang's register of names.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        stay: bool = False,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("rabbitmq", data_dir, stay=stay)
        self.port = free_port()
        self._settings = {**_FIXED, **(settings or {})}
        self._variables = variables or {}
        self._environment: dict[str, str] = {}
        self._epmd: ServerProcess | None = None
        self._broker: ServerProcess | None = None

    @property
    def url(self) -> str:
        """A target's URL."""
        return f"rabbitmq://guest:guest@{LOCALHOST}:{self.port}/%2F"

    @property
    def amqp_url(self) -> str:
        """The same for clients of RabbitMQ."""
        return f"amqp://guest:guest@{LOCALHOST}:{self.port}/%2F"

    @property
    def pid(self) -> int | None:
        """The process id of the broker, or None when it does not run."""
        return self._broker.pid if self._broker is not None else None

    def start(self) -> None:
        """Start it unless it runs, and wait until it takes connections."""
        available()
        if self.pid is not None:
            return
        try:
            self._spawn(self._folder())
        except ServerError:
            self.stop()
            raise

    def _spawn(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        names = free_port()
        self._write(folder)
        self._environment = {**_environment(folder, names), **self._variables}
        log = folder / "rabbitmq.log"
        self._epmd = ServerProcess(
            "epmd",
            [shutil.which("epmd") or "epmd", "-address", LOCALHOST, "-port", str(names)],
            log=folder / "epmd.log",
            environment=self._environment,
            stay=self._stay,
        )
        self._epmd.start()
        self._epmd.wait(lambda: not port_is_free(names), START_SECONDS)
        # With input allowed, the script becomes the broker, so that signals reach it instead of a shell.
        self._broker = ServerProcess(
            "RabbitMQ",
            [_program("rabbitmq-server"), "-noinput"],
            log=log,
            environment=self._environment,
            stay=self._stay,
        )
        before = log.stat().st_size if log.exists() else 0
        self._broker.start()
        self._broker.wait(lambda: b"Server startup complete" in _since(log, before), START_SECONDS)

    def _write(self, folder: Path) -> None:
        lines = {"listeners.tcp.1": f"{LOCALHOST}:{self.port}", **self._settings}
        (folder / "rabbitmq.conf").write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq-env.conf").write_text("")  # in place of the system's
        cookie = folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(secrets.token_hex(16))
            cookie.chmod(0o400)

    def control(self, *words: str) -> str:
        """Run rabbitmqctl on it and return its output. Raises ServerError."""
        return self.run("rabbitmqctl", "--quiet", *words)

    def run(self, program: str, *words: str) -> str:
        """Run a program of RabbitMQ on it and return its output. Raises ServerError."""
        if self.pid is None:
            raise ServerError("RabbitMQ does not run")
        ran = subprocess.run(
            [_program(program), *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=CONTROL_SECONDS,
        )
        if ran.returncode:
            raise ServerError(f"{program} {' '.join(words)}: {(ran.stderr or ran.stdout).strip()}")
        return ran.stdout

    def make_topic(self, topic: str) -> None:
        """Make a durable queue of this name, behind the default exchange."""
        words = f'{{resource, <<"/">>, queue, <<"{topic}">>}}, true, false, [], none, <<"delayq">>'
        self.control("eval", f"rabbit_amqqueue:declare({words}), ok.")

    def block(self) -> None:
        """Raise the alarm of memory: the broker blocks every connection that publishes."""
        self.control("set_vm_memory_high_watermark", "0")

    def unblock(self) -> None:
        """End that alarm."""
        self.control("set_vm_memory_high_watermark", "absolute", MEMORY)

    def stop(self) -> None:
        """Stop it in order; remove a temporary folder."""
        for process in self._processes():
            process.stop()
        self._remove_temporary()

    def _processes(self, numbers: Sequence[int] = ()) -> list[ServerProcess]:
        return [process for process in (self._broker, self._epmd) if process is not None]


def _environment(folder: Path, names: int) -> dict[str, str]:
    """The environment of the scripts, without that of the system's own RabbitMQ."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
    return kept | {
        "HOME": str(folder),  # the cookie is looked for there
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": LOCALHOST,
        "ERL_CRASH_DUMP_SECONDS": "0",
        "RABBITMQ_NODENAME": NODE,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_QUORUM_DIR": str(folder / "quorum"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "feature_flags"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +A 16 +SDio 4 +sbwt none +sbwtdcpu none +sbwtdio none"
        ),
        "RABBITMQ_CTL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +A 1 +SDio 1",
        "RABBITMQ_CTL_DIST_PORT_MIN": "35672",
        "RABBITMQ_CTL_DIST_PORT_MAX": "35999",
    }


def _since(log: Path, offset: int) -> bytes:
    with log.open("rb") as opened:
        opened.seek(offset)
        return opened.read()
