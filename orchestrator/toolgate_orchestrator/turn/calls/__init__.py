"""The calls of one turn."""
