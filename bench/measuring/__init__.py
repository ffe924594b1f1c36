"""Options, measurement, tables and plots for the scripts."""
