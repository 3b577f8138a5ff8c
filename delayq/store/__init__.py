"""The data in Redis: keys, scripts, and the commands that run them."""
