"""Rules on tools, arguments and order, written in a file."""
