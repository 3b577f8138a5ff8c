"""The periodic duties of a node besides its queues."""
