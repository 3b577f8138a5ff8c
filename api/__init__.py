"""The HTTP service: schedule, cancel, look, and mend, over JSON."""
