"""Runs a scheduler: reads questions, decides, answers."""
