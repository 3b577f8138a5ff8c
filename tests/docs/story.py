"""Runs the blocks of one page against a running delayq."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.docs.blocks import Block, matches

#: Where ./dev up listens, which is what the pages say.
API: Final = re.compile(r"(?:127\.0\.0\.1|localhost):8080\b")
REDIS: Final = re.compile(r"redis://(?:127\.0\.0\.1|localhost):6389\b(?:/0)?")


class Service(NamedTuple):
    """Where a delayq runs."""

    api: str
    redis_url: str


class Story:
    """One page's folder and names. `run` raises AssertionError if a block does not do what the page shows."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed = ""

    def run(self, block: Block) -> None:
        """Run a block, or do with it what its note says."""
        verb, _, rest = block.note.partition(" ")
        if verb == "file":
            (self._folder / rest).write_text(self._here(block.text), encoding="utf-8")
        elif verb == "prints":
            assert matches(block.text, self._printed), f"{block}: this was printed instead:\n{self._printed}"
        elif verb == "until":
            self._run_until(block, rest)
        elif block.language == "python":
            self._run_python(block)
        elif block.language == "bash":
            self._run_bash(block, int(rest) if verb == "exit" else 0)

    def _here(self, text: str) -> str:
        """The text with the addresses of the pages replaced by those of this service."""
        return REDIS.sub(self._service.redis_url, API.sub(self._service.api.removeprefix("http://"), text))

    def _env(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        env["DELAYQ_REDIS_URL"] = self._service.redis_url
        env["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), env.get("PATH", "")))
        return env | {"no_proxy": "*", "NO_COLOR": "1", "TZ": "UTC"}

    def _run_python(self, block: Block) -> None:
        # The empty lines give a traceback the line numbers of the page.
        code = compile("\n" * block.line + self._here(block.text), str(block.page), "exec", dont_inherit=True)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.chdir(self._folder):
            exec(code, self._names)
        self._printed = out.getvalue()

    def _run_bash(self, block: Block, status: int) -> None:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._here(block.text)],
            cwd=self._folder,
            env=self._env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == status, f"{block}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"
        self._printed = ran.stdout

    def _run_until(self, block: Block, text: str) -> None:
        words = {"python": [sys.executable, "-u", "-c"], "bash": ["bash", "-c"]}[block.language]
        with subprocess.Popen(
            [*words, self._here(block.text)],
            cwd=self._folder,
            env=self._env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            assert running.stdout is not None
            self._printed = ""
            try:
                while text not in self._printed:
                    line = running.stdout.readline()
                    assert line, f"{block}: it ended, and this was all:\n{self._printed}"
                    self._printed += line
            finally:
                os.killpg(running.pid, signal.SIGKILL)
