"""Plans of consumers: receive messages of a topic in delayq's own Redis, and acknowledge, extend or hand them back."""
