"""Decisions that wait for a person and are resumed later, perhaps in another process."""
