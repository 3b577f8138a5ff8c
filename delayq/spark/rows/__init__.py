"""Rows of tables as messages, and messages as rows."""
