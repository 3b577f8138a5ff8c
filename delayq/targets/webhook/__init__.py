"""An HTTP endpoint as a target."""
