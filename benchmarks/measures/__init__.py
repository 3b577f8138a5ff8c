"""The benchmarks, a file each."""
