"""Load for a benchmark and the observation of its results, mostly in processes of their own."""
