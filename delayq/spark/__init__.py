"""Spark: the data source `delayq`, for batches and streams of messages to be scheduled, and to read what is pending."""
