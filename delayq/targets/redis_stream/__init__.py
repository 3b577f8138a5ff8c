"""Redis Streams as a target."""
