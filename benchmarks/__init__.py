"""Benchmarks: each measures delayq beside a limit or a goal, in one run. `python -m benchmarks --help`."""
