"""Real servers of one's own on this machine, as child processes: for tests, benchmarks and experiments."""
