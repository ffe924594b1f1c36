"""Shards of an index that is too large for one machine: where subscriptions are placed, and where events go."""
