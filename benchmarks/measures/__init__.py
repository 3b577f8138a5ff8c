"""The benchmarks, one in each file; `controls` has three."""
