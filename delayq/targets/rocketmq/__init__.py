"""RocketMQ as a target."""
