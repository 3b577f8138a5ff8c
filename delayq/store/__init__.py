"""Everything that is kept in Redis: keys, scripts, and the commands that run them."""
