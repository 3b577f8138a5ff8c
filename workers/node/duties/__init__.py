"""The periodic duties of a node."""
