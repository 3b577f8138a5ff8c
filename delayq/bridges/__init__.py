"""Ways into delayq from other systems."""
