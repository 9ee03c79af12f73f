"""Checks that find tools of an agent object that no gate rules on: one module for each framework."""
