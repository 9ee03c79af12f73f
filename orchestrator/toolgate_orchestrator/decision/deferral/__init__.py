"""Decisions that wait for a person and go on elsewhere."""
