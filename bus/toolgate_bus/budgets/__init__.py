"""Ledger of the costs of calls: reservations, settlement, limits."""
