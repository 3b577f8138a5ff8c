"""What a worker tells about itself: metrics, health, log lines."""
