"""Events, in whatever form they come, to columns and rows."""
