"""What callers use: the clients, and what they do with Redis."""
