"""One queue under one epoch, from the pull to the settlement."""
