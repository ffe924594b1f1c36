"""Turns subscriptions, in whatever form they come, into blocks of predicates."""
