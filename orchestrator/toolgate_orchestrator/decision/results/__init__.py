"""Rulings on results: what a call gave, before anybody sees it."""
