"""Commands in the files of an image, as `docker run --read-only --tmpfs /tmp --cap-drop ALL --network host` runs them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.waiting import eventually

#: In a mount and a process namespace of its own: the files, read-only, with their /tmp, /proc and /dev and this machine's
#: names; then the command in the place of this, as process 1, of that user, without rights.
_INSIDE: Final = """\
set -e
root=$1 options=$2 user=$3 folder=$4
shift 4
mount --bind "$root" "$root"
mount -t tmpfs -o "mode=1777,nosuid,nodev,$options" tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for name in /etc/hosts /etc/resolv.conf; do mount --bind "$name" "$root$name"; done
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups \\
    --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs env -i -C "$folder" "$@"
"""
_ALONE: Final = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--kill-child=KILL")


class Boxed:
    """A running command, with its output in a log."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    @property
    def pid(self) -> int:
        """Its number outside, where its first process has another than 1."""
        children = Path(f"/proc/{self._popen.pid}/task/{self._popen.pid}/children")
        return int(eventually(lambda: children.read_text().split(), "it runs")[0])

    def status(self) -> dict[str, str]:
        """Its lines in /proc/PID/status."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def stop(self) -> int:
        """Send SIGTERM, as `docker stop` does, and return the exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self._popen.wait()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._popen.kill()
        self._popen.wait()

    def said(self) -> str:
        """All that it wrote."""
        return self.log.read_text(errors="replace")


class Box:
    """The files of an image and its configuration. `options` are further mount options of its /tmp."""

    def __init__(self, root: Path, config: Mapping[str, Any], options: str = "noexec") -> None:
        self.root = root
        self.config = config
        self._options = options

    def run(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = self._command(words, settings)
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def start(self, *words: str, log: Path, **settings: str) -> Boxed:
        """Start a command; without words, that of the image."""
        return Boxed(self._command(words or self.config["Cmd"], settings), log)

    def _command(self, words: tuple[str, ...], settings: Mapping[str, str]) -> list[str]:
        given = [*self.config["Env"], *(f"{name}={value}" for name, value in settings.items())]
        inside = [str(self.root), self._options, self.config["User"], self.config["WorkingDir"]]
        return [*_ALONE, "sh", "-c", _INSIDE, "sh", *inside, *given, *words]
