"""Looking after what is in Redis: audits, repairs, resharding, undoing a run."""
