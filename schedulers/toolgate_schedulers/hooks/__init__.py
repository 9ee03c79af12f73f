"""Schedulers as hooks in an agent's own process."""
