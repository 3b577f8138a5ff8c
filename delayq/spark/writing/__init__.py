"""Rows on their way to Redis: what each task does, and the driver when all are done."""
