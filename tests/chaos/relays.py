"""The relay process, from the outside: ports by name, and what they are told to do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from delayq.embedded.processes import LOCALHOST, die_with_parent, free_port
from tests.support.service import ROOT

__all__ = ["Relays"]


class Relays:
    """`to` maps names to ports; `relays.url(name)` leads there through the relay. Not for several threads."""

    def __init__(self, to: Mapping[str, int], log: Path) -> None:
        self._ports: dict[str, int] = {}
        while len(self._ports) < len(to):
            port = free_port()
            if port not in self._ports.values() and port not in to.values():
                self._ports[list(to)[len(self._ports)]] = port
        self._to = to
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def address(self, name: str) -> str:
        """host:port."""
        return f"{LOCALHOST}:{self._ports[name]}"

    def start(self) -> None:
        """Start, and wait until it listens."""
        ports = {name: (port, self._to[name]) for name, port in self._ports.items()}
        command = [sys.executable, "-m", "tests.chaos.relay", json.dumps(ports)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                die_with_parent(command), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._expect("ready")

    def tell(self, action: str, names: Sequence[str]) -> None:
        """Break or heal these; done when this returns."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(" ".join((action, *names)) + "\n")
        self._process.stdin.flush()
        self._expect("done")

    def heal(self) -> None:
        """Pass everything on."""
        self.tell("pass", list(self._ports))

    def _expect(self, word: str) -> None:
        assert self._process is not None and self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said == word, f"the relay said {said!r}; see {self._log}"

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process = None
