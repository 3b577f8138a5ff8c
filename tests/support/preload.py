"""C files that are loaded before the C library of a process (LD_PRELOAD), to change answers of the system."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_FLAGS = ["-O2", "-Wall", "-Werror", "-fPIC", "-shared"]


def shim(source: Path, folder: Path) -> Path:
    """The shared library of a C file, made in `folder` unless it is there already; skips without a C compiler."""
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD is tried on Linux only: run this there")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: install one (apt install gcc libc6-dev)")
    library = folder / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")  # several processes may share the folder
        made_by = [compiler, *_FLAGS, "-o", str(made), str(source), "-ldl"]
        ran = subprocess.run(made_by, capture_output=True, text=True, timeout=60, check=False)
        if "cannot find" in ran.stderr or "No such file" in ran.stderr:
            pytest.skip(f"the C compiler lacks the headers of the C library (apt install libc6-dev): {ran.stderr}")
        assert ran.returncode == 0, ran.stderr
        made.rename(library)
    return library
