"""Scarce slots: their holders, and the order in which other calls wait for them."""
