"""The clients, and their operations on Redis."""
