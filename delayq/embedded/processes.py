"""Child processes and ports: run servers on one machine and leave none behind."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache  # noqa: TID251  # it has no argument
from pathlib import Path

from delayq.base.clock import SystemClock, pause

if sys.platform != "win32":
    import fcntl

LOCALHOST = "127.0.0.1"

_REMEMBERED = 1_000
_given: set[int] = set()

# PR_SET_PDEATHSIG (1) survives exec. A tiny Python sets it and then becomes the command. `preexec_fn` would be unsafe in a
# process that has threads, and Python 3.12 warns about that. If the parent died before the call, no process sends the
# signal: hence the look at getppid.
_DIE_WITH_PARENT = """\
import os, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, ctypes.c_ulong(15), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def die_with_parent(command: Sequence[str]) -> list[str]:
    """Return `command` for Popen, such that on Linux it gets SIGTERM when this process dies.

    The kernel means the *thread* that forked, so from any thread except the main one the command is unchanged.
    """
    main = threading.current_thread() is threading.main_thread()
    if sys.platform != "linux" or not sys.executable or not main:
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]


def port_is_free(port: int, host: str = LOCALHOST) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT does not prevent it
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
        return True


def free_port(*beside: int) -> int:
    """Return a free port below those that systems give to outgoing connections; also free are those at these distances.

    A client that connects again and again to a port of that range, while its server is down, may reach itself. Recently
    chosen ports are not chosen again, also not by another running process of this user. Their servers may not have
    opened them yet.
    """
    if len(_given) >= _REMEMBERED:
        _release_claims()
    ports = random.SystemRandom().sample(range(20_000, 32_000), 200)
    for port in ports:
        wanted = {port, *(port + distance for distance in beside)}
        if not wanted & _given and all(_claim(one) and port_is_free(one) for one in wanted):
            _given.update(wanted)
            return port
    raise OSError("no free port was found between 20000 and 32000")


def _claim(port: int) -> bool:
    """Lock the byte of this number in a file that all processes of a user share; the lock ends with the process."""
    if sys.platform == "win32":  # it has no such locks: there ports are distinguished within a process only
        return True
    claims = _claims()
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _claims() -> int:
    """Return the descriptor of that file."""
    file = Path(tempfile.gettempdir()) / f"delayq-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _release_claims() -> None:
    _given.clear()
    if sys.platform != "win32":
        fcntl.lockf(_claims(), fcntl.LOCK_UN)


def await_end(process: subprocess.Popen[bytes], patience: float) -> None:
    """Wait until a process has ended that got a signal to end. After `patience` seconds it is killed."""
    clock = SystemClock()  # `Popen.wait` uses a clock that tests freeze
    deadline = clock.monotonic() + patience * 1000
    while process.poll() is None:
        if clock.monotonic() > deadline:
            process.kill()
            process.wait()
        pause(clock, 5)


def stop_server_of(folder: Path, patience: float) -> None:
    """Stop the server that `folder/valkey.pid` names, if it still runs there: SIGTERM, then SIGKILL."""
    try:
        pid = int((folder / "valkey.pid").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    clock = SystemClock()
    for signum in (signal.SIGTERM, signal.SIGKILL):
        deadline = clock.monotonic() + patience * 1000
        if _is_server_of(folder, pid):
            os.kill(pid, signum)
        while _is_server_of(folder, pid) and clock.monotonic() < deadline:
            pause(clock, 20)


def _is_server_of(folder: Path, pid: int) -> bool:
    """Return whether `pid` is still that server: numbers are used again, and folders are copied with their pid file."""
    process = Path(f"/proc/{pid}")
    if Path("/proc/self").exists():
        try:
            return (process / "cwd").readlink() == folder and b"-server" in (process / "cmdline").read_bytes()
        except OSError:  # gone, a zombie, or another user's
            return False
    listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    return f"-server {LOCALHOST}:".encode() in listed.stdout
