"""Benchmarks of delayq (`./dev bench --help`), and what goes wrong in a benchmark itself."""

__all__ = ["BenchmarkError", "TooLate"]


class BenchmarkError(Exception):
    """A benchmark could not take its measurement; the message gives the reason."""


class TooLate(BenchmarkError):
    """Scheduling a backlog took longer than until its due time."""
