"""What a node looks after besides its queues, each in its own time."""
