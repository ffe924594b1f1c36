"""The commands one by one: arguments and what they do. Each imports what it needs when it runs."""
