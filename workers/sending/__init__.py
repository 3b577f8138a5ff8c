"""The way to the targets: forwarders, circuits, back-off."""
