"""Plans that schedule messages."""
