"""Everything that is kept in Redis: keys, scripts, and the commands that run them."""

from delayq.store.keys import Layout, QueueKeys, queue_keys

__all__ = ["Layout", "QueueKeys", "queue_keys"]
