"""`python -m reliability.chaos.mutant NAME workers`: the workers (or the api) with that mutant planted."""

from __future__ import annotations

import runpy
import sys

from reliability.chaos.mutants import MUTANTS, plant

if __name__ == "__main__":
    _, name, module = sys.argv
    (found,) = (one for one in MUTANTS if one.name == name)
    plant(found)
    sys.argv[1:] = []
    runpy.run_module(module, run_name="__main__", alter_sys=True)
