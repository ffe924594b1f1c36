"""Turns events, in whatever form they come, into columns and rows."""
