"""Interfaces for authors of schedulers."""
