"""Limits of topics: how many messages a second, and how many at a time, this node may send."""
