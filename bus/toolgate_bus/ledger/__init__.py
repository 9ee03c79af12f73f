"""Ledgers of what is scarce: money and slots."""
