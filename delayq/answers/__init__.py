"""The JSON answers of the HTTP API and of `--json`."""
