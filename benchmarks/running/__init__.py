"""Servers and processes that benchmarks run, and the limits with which they compare."""
