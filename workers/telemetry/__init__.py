"""A worker's metrics, and its port for health checks and scrapes."""
