"""What goes wrong in a benchmark itself."""

__all__ = ["BenchmarkError", "TooLate"]


class BenchmarkError(Exception):
    """A benchmark could not measure what it is to measure; the message says why."""


class TooLate(BenchmarkError):
    """Scheduling a backlog took longer than until its due."""
