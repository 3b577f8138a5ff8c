"""Maintenance of the data in Redis: accounts, repairs, resharding, undoing a run."""
