"""Rows on their way to Redis: the work of each task, and of the driver at the end."""
