"""One worker process: its queues, and its periodic duties."""
