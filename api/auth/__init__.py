"""Callers and their permissions."""
