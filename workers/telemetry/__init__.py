"""What a worker tells about itself: metrics and health."""
