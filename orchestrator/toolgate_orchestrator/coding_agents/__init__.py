"""Coding agents that ask by hooks: their events as calls, rulings as their answers, and back."""
