"""The telemetry of delayq: traces, histograms, log lines."""
