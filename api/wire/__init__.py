"""Requests and responses of the API, and its problems."""
