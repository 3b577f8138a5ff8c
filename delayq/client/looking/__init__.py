"""Plans that read what Redis holds and change nothing."""
