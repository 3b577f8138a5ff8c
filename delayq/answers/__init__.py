"""The JSON that the HTTP API and `--json` answer."""
