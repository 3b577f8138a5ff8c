"""RabbitMQ as a target: confirms, mandatory, one round trip a batch."""
