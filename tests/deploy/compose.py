"""docker-compose.yml read as Compose reads it, and its services run as processes: names become ports of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, die_with_parent, free_port
from tests.support.waiting import eventually

__all__ = ["COMPOSE", "ROOT", "Container", "Image", "Names", "image_environment", "in_order", "load", "replicas"]

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)(?:(:?-)([^}]*))?\})")

Service = dict[str, Any]


def load(text: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The file with its variables replaced: `${NAME}`, `${NAME-default}` and `${NAME:-default}`; `$$` is a dollar."""

    def value(match: re.Match[str]) -> str:
        name, kind, default = match.groups()
        if name is None:
            return "$"
        given = environment.get(name)
        return default or "" if given is None or (kind == ":-" and not given) else given

    def replaced(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: replaced(one) for name, one in part.items()}
        if isinstance(part, list):
            return [replaced(one) for one in part]
        return _VARIABLE.sub(value, part) if isinstance(part, str) else part

    found: dict[str, Any] = replaced(msgspec.yaml.decode(text))
    return found


def replicas(service: Service) -> int:
    """How many containers a service has."""
    return int(service.get("deploy", {}).get("replicas", 1))


def in_order(services: Mapping[str, Service]) -> list[str]:
    """The services, each behind those that it depends on."""
    ordered: list[str] = []

    def add(name: str, above: tuple[str, ...] = ()) -> None:
        assert name not in above, f"{name} depends on itself"
        for other in services[name].get("depends_on", {}):
            add(other, (*above, name))
        if name not in ordered:
            ordered.append(name)

    for name in services:
        add(name)
    return ordered


def image_environment() -> dict[str, str]:
    """What the Dockerfile's last ENV of the runtime stage says, with the checkout in the place of /app."""
    stage = (ROOT / "Dockerfile").read_text().split("AS delayq\n")[1].split("\nFROM")[0]
    (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", stage, re.MULTILINE)
    pairs = dict(word.split("=", 1) for word in block.replace("\\\n", " ").split())
    return {name: value.replace("/app", str(ROOT)) for name, value in pairs.items() if name != "HOME"}


class Names:
    """Where `service:port` is on this machine."""

    def __init__(self, services: Mapping[str, Service]) -> None:
        self._known: dict[str, str] = {}
        names = "|".join(sorted(map(re.escape, services), key=len, reverse=True))
        self._pattern = re.compile(rf"(?<![\w.-])({names}):(\d+)\b")

    def put(self, name: str, address: str) -> None:
        """It is there."""
        self._known[name] = address

    def address(self, name: str) -> str:
        """Where it is; a free port if nobody has said."""
        if name not in self._known:
            self._known[name] = f"{LOCALHOST}:{free_port()}"
        return self._known[name]

    def port(self, service: str, port: int) -> int:
        """The port of this machine that stands for a service's."""
        return int(self.address(f"{service}:{port}").rpartition(":")[2])

    def translate(self, text: str) -> str:
        """The text with addresses of this machine."""
        return self._pattern.sub(lambda match: self.address(match.group()), text)


@dataclass(frozen=True, slots=True)
class Image:
    """What a service finds in its image: the command that it has of itself, and files, by their paths, on this machine."""

    command: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    working_directory: Path | None = None


class Container:
    """One container of a service, as a process: its command, its environment, its health check, and nothing else.

    `ports` are those that it listens at, and which they are on this machine; mounted files are taken from the checkout.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        names: Names,
        ports: Mapping[int, int],
        folder: Path,
        *,
        image: Image | None = None,
        **environment: str,
    ) -> None:
        self.name = name
        self.ports = ports
        self._service = service
        self._names = names
        self._image = image or Image()
        self._folder = folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._places = {inside: str(here) for inside, here in self._image.files.items()}
        self._mount()
        given = {key: self.local(str(value)) for key, value in service.get("environment", {}).items()}
        system = {key: os.environ[key] for key in ("PATH", "JAVA_HOME") if key in os.environ}
        system["PATH"] = f"{Path(sys.executable).parent}:{system['PATH']}"  # what a shell in there calls python
        self.environment = {**system, **image_environment(), **given, **environment}
        self.log = self._folder / "log"
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Run the command, the image's if the file gives none, with these words behind it."""
        words = self._service.get("command", self._image.command)
        with self.log.open("wb") as log:
            self._popen = subprocess.Popen(
                die_with_parent([*self.command(words), *more]),
                cwd=self._directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def command(self, words: Sequence[str]) -> list[str]:
        """A command of the container as one of this machine."""
        program, *rest = words
        mine = {"python": [sys.executable], "delayq": [sys.executable, "-m", "delayq.cli"], "redis-server": [_redis()]}
        return [*mine.get(program, [self.local(program)]), *(self.local(word) for word in rest)]

    def local(self, text: str) -> str:
        """A word or value with this machine's addresses, ports and paths; nothing listens to the world."""
        text = self._names.translate(text).replace("0.0.0.0", LOCALHOST).replace("://:", f"://{LOCALHOST}:")
        for port, here in self.ports.items():
            text = re.sub(rf"(?<!\d){port}(?!\d)", str(here), text)
        return self._placed(text)

    def place(self, path: str) -> Path:
        """Where a file of the container is."""
        return Path(self._placed(path))

    def healthy(self) -> bool:
        """What its health check says now."""
        assert self._popen is not None and self._popen.poll() is None, f"{self.name} ended:\n{self.said()}"
        kind, *words = self._service["healthcheck"]["test"]
        if kind == "CMD-SHELL":
            words = ["sh", "-c", *words]
        try:
            return self.run(*words).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def wait(self) -> None:
        """Until it is healthy."""
        eventually(self.healthy, f"{self.name} is healthy")

    def ended(self) -> int:
        """Wait for its end: how it was."""
        assert self._popen is not None
        return self._popen.wait(250)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As `docker compose exec` does."""
        return subprocess.run(
            self.command([*words]),
            env=self.environment,
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def stop(self) -> int | None:
        """SIGTERM; how it ended within its grace period, or None."""
        if self._popen is None:
            return None
        self._popen.terminate()
        try:
            return self._popen.wait(_seconds(self._service.get("stop_grace_period", "10s")))
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
            return None

    def kill(self) -> None:
        """SIGKILL, for what nobody wants any more."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()

    def said(self) -> str:
        """What it wrote."""
        return self.log.read_text(errors="replace")

    @property
    def _directory(self) -> Path:
        return self._image.working_directory or self._folder

    def _placed(self, text: str) -> str:
        """The text with paths of this machine."""
        paths = "|".join(sorted(map(re.escape, self._places), key=len, reverse=True))
        return re.sub(rf"(?<![\w./-])({paths})(?![\w-])", lambda found: self._places[found[1]], text) if paths else text

    def _mount(self) -> None:
        """Files of the checkout are copied, their addresses and paths translated; a volume is an empty folder."""
        mounts = [volume.split(":")[:2] for volume in self._service.get("volumes", ())]
        for source, target in mounts:
            self._places[target] = f"{self._folder}{target}"
            if (ROOT / source).is_file():  # what lies beside it is named by its folder
                self._places.setdefault(str(Path(target).parent), f"{self._folder}{Path(target).parent}")
        for source, target in mounts:
            here, whole = Path(self._places[target]), ROOT / source
            if not source.startswith("./"):
                here.mkdir(parents=True)
            for file in [whole] if whole.is_file() else whole.rglob("*"):
                if file.is_file():
                    copy = here / file.relative_to(whole)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_text(self._placed(self._names.translate(file.read_text())))


def _redis() -> str:
    """A server with the command line of redis-server."""
    return shutil.which("redis-server") or str(EmbeddedServer().binary)


def _seconds(duration: str) -> int:
    match = re.fullmatch(r"(\d+)(s|m)", duration)
    assert match is not None, duration
    return int(match[1]) * {"s": 1, "m": 60}[match[2]]
