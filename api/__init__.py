"""The HTTP service: schedule, cancel, read and manage messages with JSON."""
