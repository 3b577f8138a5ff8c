"""The servers and processes that benchmarks run, and the limits beside which they measure."""
