"""Plans that change messages, topics and policies."""
