"""Subscriptions, in whatever form they come, to blocks of predicates."""
