"""What delayq tells about itself: traces, histograms, log lines."""
