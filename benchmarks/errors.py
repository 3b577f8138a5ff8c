"""What goes wrong in a benchmark itself."""

__all__ = ["BenchmarkError"]


class BenchmarkError(Exception):
    """A benchmark could not measure what it is to measure; the message says why."""
