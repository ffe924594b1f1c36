"""One module per command, with its arguments. Each imports what it needs when it runs."""
