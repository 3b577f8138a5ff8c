"""The commands, one file for each group of them."""
