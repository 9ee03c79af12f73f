"""The question about a call, and what of it may leave the process."""
