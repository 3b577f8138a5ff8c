"""One worker process: which queues it owns, and its duties beside them."""
