"""Everything that touches a socket: one server, those behind sentinels, a cluster."""
