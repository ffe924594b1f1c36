"""Sieve: groups of ranges, histograms, filters with the least leak, counting, shards."""
