"""Bridges: they take messages over from other systems."""
