"""The ledger of what calls cost: reservations, settlement, limits."""
