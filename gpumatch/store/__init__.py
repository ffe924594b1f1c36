"""Indexed subscriptions: segments, snapshots of them, and their directories."""
