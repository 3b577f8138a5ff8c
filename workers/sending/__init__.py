"""The way to the targets: senders, circuits, back-off."""
