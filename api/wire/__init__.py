"""Requests and responses: what is read, what is written, what is refused."""
